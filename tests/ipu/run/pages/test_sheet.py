"""The page of one sheet on a diagnosis has what the diagnosis says (golden)."""

from __future__ import annotations

import math

from fpsim.records.formats import Format
from ipu.run.diagnosis import Diagnosis, TriedRemedy
from ipu.run.pages.sheet import write_sheet
from ipu.run.responses import Dose, SitePair
from ipu.run.restoring import FORWARD, PrecisionSite
from ipu.run.ways import Way
from tests.experiments.accessible import NARROW, faults, walk

FP16 = Way.parse("fp16")
ONE, OTHER = PrecisionSite("fc<1>", FORWARD), PrecisionSite("fc2", FORWARD)


def test_an_ill_program(browser, tmp_path):
    remedy = TriedRemedy("Set eps", Way.parse("fp16+eps=1e-4"), 0.01, True)
    diagnosis = Diagnosis(
        FP16, 4, "ill", "The loss is NaN.", math.inf, [2.0, math.nan], [2.0, 1.0],
        [ONE, OTHER], [ONE], window=(1, 3), remedies=[remedy],
        pairs=[SitePair(ONE, OTHER, (0.5, 0.5, 0.5, 0.0))],
        doses=[Dose(Format.custom(6, 11), 0.002, True)],
    )
    page = write_sheet(tmp_path / "a.html", diagnosis, "-eps=1e-8\n+eps=1e-4", "train.py")
    text = page.read_text()
    for part in ("train.py in fp16: ill</h1>", "The loss is NaN.", "Harm infinite",
                 "in the steps 1 to 2 alone", "fc&lt;1&gt; (forward), fc2 (forward).",
                 "interact: 50.0% with neither given back", "<td>6</td><td>11</td><td>0.2%</td>",
                 "<code>fp16+eps=0.0001</code></td><td>1.0%</td><td>cures</td>", "+eps=1e-4</pre>",
                 "<svg"):
        assert part in text, part
    assert (faults(browser, page), walk(browser, page, NARROW)) == ([], [])


def test_a_healthy_program_has_no_tables(tmp_path):
    diagnosis = Diagnosis(FP16, 4, sentence="No harm was found.", losses=[2.0, 1.0],
                          reference=[2.0, 1.0])
    text = write_sheet(tmp_path / "a.html", diagnosis, "", "train.py").read_text()
    assert "healthy</h1>" in text
    assert "<table" not in text
