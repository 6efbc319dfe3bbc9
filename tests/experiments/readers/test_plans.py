"""Every number of a plan's page from the file inside of it; where no plan fits too (law)."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from ipu.experiments.pictures.plan_page import write_plan_page
from ipu.plan.chain import ChainLayer, Holding, LayerChain
from ipu.plan.search import POPTORCH, PlanSpace, search
from tests.experiments.readers.plans import read_plan_page
from tests.ipu.plan.chains import chain_of

HEAVY = replace(chain_of(4), variables={i: Holding(125 * 10**6, 125 * 10**6, (125 * 10**6,) * 2)
                                        for i in range(4)})
#: Room of an IPU beside the most and the least code.
PERHAPS = LayerChain([ChainLayer("a", 10**6, 10**6, 0, 0, ("w",))], [],
                     {"w": Holding(1472 * 638976 - 10**8)})
CASES = {
    "a plan": (chain_of(6), PlanSpace(2, 8, POPTORCH), "Use the plan with *"),
    "stages that share": (chain_of(5, seed=3, shared=True), PlanSpace(4, 16),
                          "Use the plan with *"),
    "replicas": (chain_of(3), PlanSpace(4, 8, POPTORCH, replicas=2), "Use the plan with *"),
    "memory binds": (HEAVY, PlanSpace(2, 8, POPTORCH), "Use the plan with *"),
    "code decides": (PERHAPS, PlanSpace(1, 1, POPTORCH, offloads=((),)), "Use the plan with *"),
    "none fits": (HEAVY, PlanSpace(2, 8, POPTORCH, offloads=((),)),
                  "No plan fits"),
}
#: What their pages say beside the opening.
SAYS = {"code decides": "It fits if its code takes less", "memory binds": "by memory of stage",
        "none fits": "Use more IPUs, smaller micro-batches"}


@pytest.mark.parametrize("name", CASES)
def test_every_number_follows_from_the_data(name, tmp_path):
    chain, space, opening = CASES[name]
    page = write_plan_page(tmp_path, search(chain, space), "A network").read_text("utf-8")
    assert read_plan_page(page) == opening
    if name in SAYS:
        assert SAYS[name] in page


@pytest.mark.parametrize("name", ["a plan", "none fits"])
def test_a_number_that_is_not_the_data_s_is_noticed(name, tmp_path):
    """Each number of the sentences in turn is changed in its last digit."""
    chain, space, _ = CASES[name]
    page = write_plan_page(tmp_path, search(chain, space), "A network").read_text("utf-8")
    page = re.sub(r"<(svg|style|script).*?</\1>", "", page, flags=re.DOTALL)
    sentences = list(re.finditer(r'<p class="answer">(.*?)</p>', page))
    places = [sentence.start(1) + number.end() - 1 for sentence in sentences
              for number in re.finditer(r"(?<![\w&#])\d+(?:\.\d+)?(?![\w;])", sentence[1])]
    assert len(places) > 5
    for last in places:
        wrong = page[:last] + str((int(page[last]) + 1) % 10) + page[last + 1 :]
        with pytest.raises(AssertionError):
            read_plan_page(wrong)
