"""Training steps of PyTorch programs through the front end, beside torch's own in binary32.

A perceptron, a convolutional network and decoders of three sizes, as users write them: in binary16
by stochastic rounding and in binary32, either captured and replayed too, and the first counted;
decoders by recipes of blocks too. A session is opened for several steps.
Where torch is not installed there is nothing to measure.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

from fpsim.state.threads import get_threads
from ipu.experiments.bench.steps.torch_networks import classifying
from ipu.experiments.bench.timing import Call, Size, TimedCase

__all__ = [
    "PROGRAMS", "SIZES", "Decoder", "TimedProgram", "cases", "step_case", "steps_in_torch",
]

#: n is that of an operation: a step.
SIZES = Size(n=1, repeats=5), Size(n=1, repeats=1)
#: Policy, whether rounding is stochastic, and whether operations are counted.
_WAYS = ("fp16", True, False), ("fp16", True, True), ("fp32", False, False)
#: Steps before a captured one is replayed.
_BEFORE_REPLAY = 4
#: What decoders run in as well: their products in blocks.
_IN_BLOCKS = ("nvfp4", False, False), ("mxfp8", False, False)
_FORMATS = {"fp16": "binary16", "fp32": "binary32"}
_CLASSES, _SIDE = 10, 28


class Decoder(NamedTuple):
    """Sizes of a decoder of characters."""

    width: int
    layers: int
    heads: int
    context: int
    vocabulary: int = 96


class TimedProgram(NamedTuple):
    """A network, its batch, and the steps that a session is opened for."""

    network: str | Decoder
    batch: int
    steps: int


#: Programs by name.
PROGRAMS: dict[str, TimedProgram] = {
    **{f"MLP {n}": TimedProgram("MLP", n, 8) for n in (8, 64)},
    "MLP 512": TimedProgram("MLP", 512, 4),
    "CNN 8": TimedProgram("CNN", 8, 4),
    "CNN 40": TimedProgram("CNN", 40, 2),
    "decoder of width 16": TimedProgram(Decoder(16, 2, 2, 16), 4, 4),
    "decoder of width 128": TimedProgram(Decoder(128, 4, 4, 64), 4, 1),
    "decoder of width 768": TimedProgram(Decoder(768, 2, 12, 128), 1, 1),
}
#: Those that --quick runs.
_QUICK = ("MLP 8",)


def cases(size: Size, quick: bool) -> Iterator[TimedCase]:
    """Each program in each way; a figure is the time of a step."""
    if importlib.util.find_spec("torch") is None:
        return
    for name in _QUICK if quick else PROGRAMS:
        program = PROGRAMS[name]._replace(steps=1) if quick else PROGRAMS[name]
        yield from _replayed_cases(name, program, size.repeats)
        is_decoder = isinstance(program.network, Decoder)
        for policy, sr, count in (*_WAYS, *(_IN_BLOCKS if is_decoder else ())):
            yield step_case(f"step {name}", program, policy, sr, size.repeats, count=count)


def _replayed_cases(name: str, program: TimedProgram, repeats: int) -> Iterator[TimedCase]:
    """The program captured and replayed, in binary16 with stochastic rounding and in binary32."""
    for policy, sr in (("fp16", True), ("fp32", False)):
        yield TimedCase(
            f"step {name}", _FORMATS[policy], partial(_replayed, program, policy, sr),
            steps_in_torch(program), program.steps, repeats, "SR" if sr else "RNE", flags=True,
            data="replayed", peer=f"torch {version('torch')}",
        )


def step_case(
    topic: str, program: TimedProgram, policy: str, sr: bool, repeats: int, *, count: bool = False,
    n: int | None = None,
) -> TimedCase:
    """The program in a way, beside torch's own; n: in how many parts a figure takes its time."""
    return TimedCase(
        topic, _FORMATS.get(policy, policy), partial(_on_the_machine, program, policy, sr, count),
        steps_in_torch(program), program.steps if n is None else n, repeats,
        "SR" if sr else "RNE", flags=True, data="counted" if count else "torch",
        peer=f"torch {version('torch')}",
    )


def _on_the_machine(program: TimedProgram, policy: str, sr: bool, count: bool) -> Call:
    """The program's steps in a session, which is opened and closed each time."""
    front: Any = importlib.import_module("fpsim.torch")
    session, call = front.machine(policy, sr=sr, count=count), steps_in_torch(program)

    def steps() -> None:
        with warnings.catch_warnings(), session:
            # Products of attention are in no recipe, which docs/block-scaled.md says.
            warnings.simplefilter("ignore", RuntimeWarning)
            call()

    return steps


def _replayed(program: TimedProgram, policy: str, sr: bool) -> Call:
    """The program's steps in a session, captured and replayed."""
    front: Any = importlib.import_module("fpsim.torch")
    session = front.machine(policy, sr=sr)
    replayed = session.captured(_step_of(program), check=1 << 30)

    def steps(n: int = program.steps) -> None:
        with session:
            for _ in range(n):
                replayed()

    steps(_BEFORE_REPLAY)
    if not replayed.replayed:
        raise RuntimeError(f"the step of {program.network} is not replayed: {replayed.reason}")
    return steps


def steps_in_torch(program: TimedProgram) -> Call:
    """The program's steps, with parameters and data by one seed."""
    step = _step_of(program)

    def steps() -> None:
        for _ in range(program.steps):
            step()

    return steps


def _step_of(program: TimedProgram) -> Call:
    """One step of the program."""
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(get_threads())
    with torch.random.fork_rng():
        torch.manual_seed(1)
        if isinstance(program.network, Decoder):
            return _decoding(torch, program.network, program.batch)
        return _classifying(torch, program.network, program.batch)


# Programs ---------------------------------------------------------------------------------------


def _classifying(torch: Any, network: str, batch: int) -> Call:
    """Images of handwritten digits' size, by SGD with momentum."""
    model = {"MLP": _perceptron, "CNN": _convolutions}[network](torch.nn)
    images = torch.randn(batch, 1, _SIDE, _SIDE)
    labels = torch.randint(_CLASSES, (batch,))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return classifying(torch, model, optimiser, images, labels)


def _perceptron(nn: Any) -> Any:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(_SIDE**2, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
        nn.Linear(256, _CLASSES),
    )


def _convolutions(nn: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * (_SIDE // 4) ** 2, 128), nn.ReLU(), nn.Linear(128, _CLASSES),
    )


def _decoding(torch: Any, sizes: Decoder, batch: int) -> Call:
    """Characters, by AdamW with an eps that binary16 holds."""
    model = _decoder(torch, sizes)
    text = torch.randint(sizes.vocabulary, (batch, sizes.context + 1))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-4)

    def step() -> None:
        optimiser.zero_grad()
        logits = model(text[:, :-1]).flatten(0, 1)
        torch.nn.functional.cross_entropy(logits, text[:, 1:].flatten()).backward()
        optimiser.step()

    return step


def _decoder(torch: Any, sizes: Decoder) -> Any:
    nn, functional = torch.nn, torch.nn.functional
    width, heads = sizes.width, sizes.heads

    class DecoderBlock(nn.Module):  # type: ignore[misc, name-defined]
        """Norms before attention and before a perceptron, each beside the way around it."""

        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )

        def forward(self, x: Any) -> Any:
            split = self.qkv(self.norm1(x)).unflatten(-1, (3, heads, width // heads))
            attended = functional.scaled_dot_product_attention(
                *split.permute(2, 0, 3, 1, 4), is_causal=True
            )
            x = x + self.mix(attended.transpose(1, 2).flatten(2))
            return x + self.wide(self.norm2(x))

    class CharacterDecoder(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.characters = nn.Embedding(sizes.vocabulary, width)
            self.places = nn.Parameter(torch.randn(sizes.context, width) * 0.02)
            self.blocks = nn.Sequential(*[DecoderBlock() for _ in range(sizes.layers)])
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, sizes.vocabulary, bias=False)

        def forward(self, text: Any) -> Any:
            return self.head(self.norm(self.blocks(self.characters(text) + self.places)))

    return CharacterDecoder()
