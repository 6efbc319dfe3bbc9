"""How many steps a diagnosis follows: more where the first ones leave the answer open.

Gradients that underflow, or updates that leave their parameter as it was, may do no harm in ten
steps and much of it in forty, as where a few numbers of a tensor must grow before they matter.
Losses of more steps part without a cause, too, as of any two runs of a training that is chaotic.
So what the longer run tells counts only where its first cause is no such parting, and a remedy of
it cures.

Nor do ten steps tell a small harm from chance, as of losses that are rounded otherwise. Of more
steps that chance is smaller beside what the losses go through; their answer is the one that counts.

Evidence    ASSUMED: the numbers of steps.
"""

from __future__ import annotations

from collections.abc import Callable

from ipu.run.budget import Budget
from ipu.run.causes.finding import find_causes
from ipu.run.diagnosis import Diagnosis
from ipu.run.harm import HARM
from ipu.run.responses import harm_text

__all__ = ["FIRST_STEPS", "FURTHER", "followed_further"]

#: Steps that are followed, and how many times as many where these lose digits without harm.
FIRST_STEPS, FURTHER = 10, 4
#: Kinds of causes that are told of the distance of losses alone, which chaos makes too.
_OF_DISTANCE = ("data", "cancellation", "underflow", "sums", "outside")


def followed_further(
    diagnosed: Callable[[int, Budget], Diagnosis], budget: Budget,
    tell: Callable[[Diagnosis], object] = id,
) -> Diagnosis:
    """The diagnosis of the first steps; of more, where these lose digits or leave it open.

    diagnosed    of so many steps, within a budget.
    budget       of both.
    tell         is called with the first one where more steps are followed.
    """
    first = diagnosed(FIRST_STEPS, budget)
    may_show_later = first.noise or (first.answer == "healthy" and first.harmless)
    if not may_show_later or first.left_out or not budget.has_time():
        return first
    tell(first)
    later = diagnosed(FURTHER * FIRST_STEPS, Budget(budget.left))
    result = later if first.noise or later.answer == "healthy" or _is_tested(later) else first
    if result is first and later.harm > HARM:
        first.harmless.append(
            f"the losses of {later.steps} steps part from {later.beside}'s by "
            f"{harm_text(later.harm)}, as those of any two runs may, and no cause was found"
        )
    result.runs, result.seconds = first.runs + later.runs, budget.spent
    return result


def _is_tested(later: Diagnosis) -> bool:
    """Whether losses part by a cause that chaos does not make, and a remedy cures it."""
    cause = next(iter(find_causes(later.report)), None)
    return (later.harm > HARM and later.cure is not None and cause is not None
            and cause.kind not in _OF_DISTANCE)
