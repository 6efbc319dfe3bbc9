"""A newcomer's tasks: search and navigation of the built site lead to the answer (golden)."""

from __future__ import annotations

import html
import os
import re
from collections import deque
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote, urldefrag

import pytest

from tests.experiments.browser import dump

SITE = Path(os.environ.get("FPSIM_SITE", ""))
pytestmark = pytest.mark.skipif(not os.environ.get("FPSIM_SITE"), reason="make site builds it")


class Task(NamedTuple):
    """What a newcomer wants to know, what they type, and where the answer stands."""

    words: str
    page: str
    answer: str


#: Questions in a newcomer's words, as they would be asked of a colleague.
TASKS = {
    "What are the bits of 0.1 in FP8?": Task("bits of a number", "bits", "Type a number"),
    "Which loss scale do I take?": Task("loss scale", "recipes/loss-scale", "the largest one"),
    "Would my model train in NVFP4?": Task("NVFP4", "tutorials/pytorch-in-nvfp4", "nvfp4"),
    "What does acc= in a policy mean?": Task("policy acc", "glossary", "acc="),
    "How does a V100 add?": Task("V100 unit", "reference/units", "V100 tensor core"),
    "How do I cite a result?": Task("citation", "recipes/into-a-paper", "BibTeX"),
    "How do I run a sweep under Slurm?": Task("cluster", "recipes/cluster-sweep", "Slurm"),
    "Does it run on macOS, or with JAX?": Task("macOS", "platforms", "JAX: no"),
    "How is the gradient of gelu rounded?": Task("gelu", "reference/operators", "gelu"),
    "Can I have a rounding mode of my own?": Task("rounding own", "recipes/own-format", "RNU"),
    "Does stochastic rounding rescue a long sum?": Task(
        "stochastic rounding sum", "gallery/stochastic_accumulation", "ten thousand"),
    "Does my model train in FP8?": Task("train FP8", "recipes/fp8", "fp8-current"),
    "What does part= mean?": Task("part policy mean", "recipes/read-a-policy", "partials"),
    "Which digits does TF32 keep?": Task("TF32", "glossary", "11 significant digits"),
    "Is it reproducible elsewhere?": Task("reproducible", "recipes/same-bits", "to the bit"),
    "How do I install it?": Task("install", "install", "fpsim-lab"),
    "What does a dot product on a V100 give?": Task(
        "V100 dot product", "tutorials/dot-product", "V100"),
    "Where did the small updates go?": Task(
        "swallowed updates", "recipes/swallowed-updates", "swallow"),
    "Does it run on ARM?": Task("aarch64", "platforms", "aarch64"),
    "What is my GradScaler here?": Task("GradScaler", "coming-from", "GradScaler"),
    "How do I cut my model over four IPUs?": Task("plan IPUs", "recipes/which-plan", "--ipus 4"),
    "What do I do about an overflow that stops me?": Task(
        "overflow trap", "reference/errors", "FloatingPointTrap"),
    "What is in the files of a result?": Task("file formats", "reference/files", "data.csv"),
    "Which version of torch do I need?": Task("torch version tested", "platforms", "2.13"),
    "Where is the documentation of another version?": Task(
        "documentation of another version", "versions", "site-versions"),
    "What is SLIC?": Task("SLIC", "glossary", "SLIC"),
    "Does random rounding need many random bits?": Task(
        "stochastic rounding biased", "gallery/is_sr_unbiased", "unbiased"),
    "Can I solve a linear system in FP16 and refine it?": Task(
        "iterative refinement", "linear-algebra", "refine"),
    "How do I report a fault in security?": Task("security fault", "security", "private"),
    "Can my own tests draw numbers of a format?": Task(
        "hypothesis strategies", "reference/testing", "subnormal"),
    "How do I add an operation?": Task("add an operation", "contributing", "a row in the file"),
    "Why is a sum the same with any number of threads?": Task("sum tree", "why-trees", "in order"),
    "Where do two runs part?": Task("two runs differ first operation", "recipes/compare-runs",
                                    "fpsim diff"),
    "What did my GPU do to this dot product?": Task(
        "how product computed window", "how-a-product", "window"),
    "Do my random numbers change when I add a print?": Task(
        "random bits address", "how-addresses", "draw"),
    # A numerical analyst.
    "Does conjugate gradients converge in bfloat16?": Task(
        "conjugate gradients bfloat16", "recipes/own-algorithm", "stands still"),
    "How do I keep an Array in a file, bit for bit?": Task(
        "save array codes", "recipes/save-arrays", "np.savez"),
    "How do I get a LaTeX table of a result?": Task(
        "LaTeX table", "recipes/into-a-paper", "booktabs"),
    "What is CPFloat's cpf_fma here?": Task("cpf_fma", "coming-from", "ctx.fma(x, y, z)"),
    # An engineer who trains models.
    "Which policies are there?": Task("list of policies", "reference/policies", "bf16-mixed"),
    "How do I use it from Jupyter?": Task("Jupyter", "tutorials/in-a-notebook", "jupyterlab"),
    "How do I replace GradScaler's infinities?": Task(
        "machine found_inf status", "reference/torch", "found_inf"),
    "How many threads does it take?": Task(
        "number of threads", "reference/environment", "FPSIM_THREADS"),
    # Somebody who designs or measures hardware.
    "Which environment variable forces AVX2?": Task(
        "environment variable AVX2", "reference/environment", "FPSIM_CPU_LEVEL=x86-64-v3"),
    "What says that the H100 keeps 25 bits?": Task(
        "H100 evidence window", "reference/units", "window 25"),
    "Where do I get vectors for my RTL?": Task(
        "test vectors RTL", "recipes/hardware-vectors", "systemverilog"),
    "How do I make a format without infinities?": Task(
        "format without infinities", "recipes/own-format", 'specials="fn"'),
    "Does it simulate NaN payloads?": Task("NaN payload", "semantics", "payload"),
    "What is the value of code 0x3c00?": Task("code of a number", "bits", "A code that you give"),
    # A teacher.
    "Are there exercises for a lecture?": Task(
        "lecture exercises", "tutorials/rounding", "Exercises"),
    "How do I cite it, and what is its licence?": Task("cite licence", "platforms", "MIT"),
}
#: Results of a search that a reader looks at.
LOOKED_AT = 8


def text_of(page: str) -> str:
    content = (SITE / f"{page}.html").read_text(encoding="utf-8")
    return html.unescape(re.sub(r"<[^>]+>", "", content))


@pytest.mark.parametrize("question", TASKS)
def test_the_answer_stands_on_its_page(question):
    assert TASKS[question].answer in text_of(TASKS[question].page)


@pytest.mark.parametrize("question", TASKS)
def test_search_finds_it_without_a_server(question, tmp_path):
    task = TASKS[question]
    page = dump(f"{(SITE / 'search.html').resolve().as_uri()}?q={quote(task.words)}", tmp_path)
    results = re.search(r'class="search">.*', page, re.DOTALL)
    assert results, "the search has run"
    links = re.findall(r'<a href="([^"]+)"', results[0])
    pages = list(dict.fromkeys(unquote(urldefrag(link).url).partition("?")[0] for link in links))
    assert f"{task.page}.html" in pages[:LOOKED_AT]


def test_every_page_is_three_clicks_from_the_first():
    start = (SITE / "index.html").resolve()
    clicks, waiting = {start: 0}, deque([start])
    while waiting:
        page = waiting.popleft()
        text = page.read_text(encoding="utf-8")
        for link in re.findall(r'<a\b[^>]*href="([^"#:?]+\.html)', text):
            target = (page.parent / unquote(link)).resolve()
            if target not in clicks and target.exists():
                clicks[target] = clicks[page] + 1
                waiting.append(target)
    pages = {page.resolve() for page in SITE.rglob("*.html") if "_static" not in page.parts}
    alone = {"search.html", "genindex.html", "py-modindex.html"}
    assert {page.name for page in pages - set(clicks)} <= alone
    assert max(clicks.values()) <= 3
