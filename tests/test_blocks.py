"""Every block of every page runs, from the wheel and in an empty folder (golden).

Python blocks of a page run one after the other, as a reader pastes them; what a page says is the
reader's own (a model, a program) stands in PREPARED and FILES. Shell blocks run in bash. INSTEAD
shortens what takes minutes or needs other computers, and says why; each replacement must occur on
its page. Blocks that need a framework run by the make target whose environment has it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.tiers import reaches
from tests.wheels import unpacked

ROOT = Path(__file__).parents[1]
#: Cells of tutorials are run by tests/site/test_notebooks.py.
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")),
         *sorted((ROOT / "docs" / "recipes").glob("*.md")),
         *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
#: Directives of the site: no code.
DIRECTIVE = re.compile(r"^```\{.*?^```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: Blocks of developers, which are how these tests are run: their make targets must exist.
DEVELOPERS = ("make report", "make test ", "python3.11 -m venv")

#: Output that a page shows, in a block without a language.
KINDS = ("python", "sh", "")

#: What the reader brings, by page: Python before the page's blocks.
_MODEL = """
import torch
torch.manual_seed(0)
def make_model(): return torch.nn.Linear(8, 3)
model, data = make_model(), [(torch.randn(16, 8), torch.randint(0, 3, (16,))) for _ in range(4)]
def train(model, data):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for x, labels in data:
        loss = torch.nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses
"""
PREPARED = {
    "README.md": _MODEL,
    "block-scaled.md": _MODEL + "batches = data\n",
    "pytorch.md": _MODEL
    + """
from torch.utils.data import DataLoader, Subset
import sys
from ipu.frontends.popdist import path  # fpsim torch does this for the programs that it runs
sys.path += path.__path__
""",
    "tensorflow.md": """
def train():
    import numpy as np
    import tensorflow as tf
    from tensorflow.python import ipu
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(4,))])
        model.compile("sgd", "mse")
        x, y = np.eye(4, dtype=np.float32), np.eye(4, 3, dtype=np.float32)
        model.fit(x, y, batch_size=2, epochs=2, verbose=0)
def step(seed): train()
""",
}

#: A program of the reader, by page.
_TORCH = _MODEL + "train(model, data)\n"
_TENSORFLOW = """
import numpy as np
import tensorflow as tf
from tensorflow.python import ipu
config = ipu.config.IPUConfig()
config.configure_ipu_system()
def body(x): return tf.reduce_sum(tf.matmul(x, x))
if hasattr(tf, "placeholder"):
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        (result,) = ipu.ipu_compiler.compile(body, [tf.constant(np.eye(4, dtype=np.float32))])
    with tf.Session() as session:
        assert session.run(result) == 4
else:
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(4,))])
        model.compile("sgd", "mse")
        x, y = np.eye(4, dtype=np.float32), np.eye(4, 3, dtype=np.float32)
        model.fit(x, y, batch_size=2, verbose=0)
"""
_POPTORCH = """
import torch
import popdist.poptorch
from ipu.frontends import poptorch
options = popdist.poptorch.Options()
net = torch.nn.Linear(4, 2)
class Loss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net
    def forward(self, x):
        y = self.net(x)
        return y, poptorch.identity_loss((y * y).mean(), "mean")
model = poptorch.trainingModel(Loss(), options, poptorch.optim.SGD(net.parameters(), lr=0.1))
model(torch.ones(2 * 2, 4))
"""
FILES = {
    "pytorch.md": {"train.py": _TORCH},
    "tensorflow.md": {"program.py": _TENSORFLOW},
    "distributed.md": {"train.py": _POPTORCH},
    "block-scaled.md": {"train.py": _TORCH},
    "compare-runs.md": {"train.py": _TORCH},
    "fp8.md": {"train.py": _TORCH},
    "pytorch-in-fp16.md": {"train.py": _TORCH},
    "pytorch-in-nvfp4.md": {"train.py": _TORCH},
    "keras.md": {"program.py": _TENSORFLOW},
    "which-plan.md": {"train.py": _TORCH},
}

_SCHEDULER = """$(python -c 'import json; print(json.load(open("s.json"))["address"])')"""
_PORT = """$(python -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')"""  # noqa: E501
_ONE_WORKER = f"""["127.0.0.1:'"{_PORT}"'"]"""

#: By page: replacements, each with its reason.
INSTEAD = {
    "tensorflow.md": [
        ("--compare fp32", "--pairs 1 --compare fp32", "minutes"),
    ],
    **{
        page: [("--compare fp32", "--pairs 1 --compare fp32", "minutes")]
        for page in (
            "compare-runs.md", "fp8.md", "pytorch-in-fp16.md", "pytorch-in-nvfp4.md", "keras.md"
        )
    },
    "block-scaled.md": [
        ("+head=bf16", "+Linear=bf16", "the reader's layer"),
        ("--compare fp32", "--pairs 1 --compare fp32", "minutes"),
    ],
    "pytorch.md": [
        ("--compare fp32", "--pairs 1 --compare fp32", "minutes"),
    ],
    "experiments.md": [
        (".venv/bin/python experiments/", "python -m ipu.experiments.", "names in the wheel"),
        ("rounding.py ", "rounding ", "names in the wheel"),
        ("updates.py ", "updates ", "names in the wheel"),
        ("--limit 640", "--limit 64", "seconds"),
    ],
    "distributed.md": [
        ("node1:2,node2:2", "localhost:4", "one computer"),
        ("instances 4 --num-replicas 8", "instances 2 --num-replicas 2", "two cores"),
        ('["node1:3737", "node2:3737"]', _ONE_WORKER, "one computer, any port"),
        ("--checkpoint /shared/run", "--checkpoint run --quick", "seconds"),
        ("0:8 --quick", "0:2 --quick", "seconds"),
        ("0:64 --workers 8", "0:2 --quick --workers 1", "two cores"),
        ("0:64 --scheduler tcp://127.0.0.1:8786", f"0:2 --quick --scheduler {_SCHEDULER}", "port"),
        ("0:4 --set rate=1e-4,3e-4,1e-3", "0:1 --quick --set rate=1e-4,1e-3", "seconds"),
        ("epochs=5", "epochs=1", "seconds"),
        ("--port 8786", "--port 0 --scheduler-file s.json --no-dashboard &", "any port"),
        ("tcp://127.0.0.1:8786 --nthreads 1 --nworkers 2",
         "--scheduler-file s.json --nthreads 1 --no-dashboard &", "any port"),
        ("bench collectives", "bench collectives --quick", "seconds"),
        ("scaling distributed_orders --quick", "scaling --quick", "seconds"),
    ],
    "performance.md": [
        ("--json round.json", "--quick --json round.json", "minutes"),
        ("--json arith.json", "--quick --json arith.json", "minutes"),
        ("--json gemm.json", "--quick --json gemm.json", "minutes"),
        ("bench train ", "bench train --quick ", "minutes"),
        ("bench collectives ", "bench collectives --quick ", "minutes"),
        ("compare old.json new.json", "compare round.json round.json", "the reader's two files"),
    ],
    "verification.md": [
        ("testfloat_gen -rnear_even f16_add", "cat sums.txt", "an installed TestFloat"),
        ("f32_to_i32.minMag.txt.gz", "to_i32.txt", "an installed TestFloat"),
        ("V100_fp16.npz", "recorded.npz", "hardware"),
        ("proof --quick", "proof --list", "a minute"),
        ("proof convert binary16", "proof --list", "minutes"),
    ],
}

#: Library that a block needs -> the library whose environment runs it.
HOME = {"torch": "torch", "tensorflow": "tensorflow", "bitwuzla": "bitwuzla"} | dict.fromkeys(
    ("grpc", "mpi4py", "distributed"), "distributed"
)

#: The target of make for each of these environments.
TARGETS = {home: f"test-{home}" for home in HOME.values()} | {"bitwuzla": "test-proofs"}

# What runs ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """Blocks that run together: the doctests or the script of a page, or one shell block."""

    page: str
    kind: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}-{self.line}-{self.kind}-{self.extra or 'base'}"

    @property
    def extra(self) -> str:
        """The library that it needs beside fpsim's own."""
        text = self.text
        if ("tf " in text and "fpsim tf" in text) or "fpsim.tf" in text:
            return "tensorflow"
        if "torch" in text or "fpsim plan" in text:
            return "torch"
        if "verify proof" in text:
            return "bitwuzla"
        if "transport" in text and "fpsim poprun" in text:
            return "mpi4py" if "mpi" in text else "grpc"
        if "TF_CONFIG" in text or "bench collectives" in text:
            return "grpc"
        return "distributed" if "fpsim sweep" in text or "dask" in text else ""

    @property
    def tier(self) -> str:
        """Benchmarks take minutes, and sweeps start Dask four times."""
        return "full" if re.search("fpsim (bench|sweep)", self.text) else "quick"


def read(page: Path) -> str:
    """The text of a page, with empty lines in the place of directives."""
    text = page.read_text(encoding="utf-8")
    return DIRECTIVE.sub(lambda match: "\n" * match[0].count("\n"), text)


def tasks() -> list[Task]:
    """All that the pages show, in their order."""
    result = []
    for page in PAGES:
        text = read(page)
        scripts = []
        for match in FENCE.finditer(text):
            kind, block = match.groups()
            line = text.count("\n", 0, match.start()) + 1
            if kind == "python" and block.startswith(">>>"):
                result.append(Task(page.name, "doctest", line, block))
            elif kind == "python":
                scripts.append((line, block))
            elif kind == "sh" and not block.startswith(DEVELOPERS):
                result.append(Task(page.name, "sh", line, _shorter(page.name, block)))
        if scripts:
            text = "\n".join([PREPARED.get(page.name, ""), *(block for _, block in scripts)])
            result.append(Task(page.name, "script", scripts[0][0], text))
    return _joined(result)


def _shorter(page: str, block: str) -> str:
    for old, new, _ in INSTEAD.get(page, []):
        block = block.replace(old, new)
    return block


def _joined(page_tasks: list[Task]) -> list[Task]:
    """A scheduler of Dask runs beside the sweep that names it."""
    scheduler = next(task for task in page_tasks if task.text.startswith("dask scheduler"))
    rest = [task for task in page_tasks if task is not scheduler]
    wait = "while [ ! -s s.json ]; do sleep 0.2; done\n"
    first, second = scheduler.text.splitlines()
    start = f"{first}\n{wait}{second}\ntrap 'kill $(jobs -p); wait' EXIT\n"
    return [
        Task(t.page, t.kind, t.line, start + t.text) if "--scheduler $" in t.text else t
        for t in rest
    ]


TASKS = [
    # Those with torch train networks.
    pytest.param(task, marks=[pytest.mark.minutes] if task.extra == "torch" else [])
    for task in tasks() if reaches(task.tier)
]


def test_every_block_has_a_kind_and_every_replacement_a_place():
    for page in PAGES:
        text = read(page)
        assert text.count("\n```") + text.startswith("```") == 2 * len(FENCE.findall(text)), page
        assert {kind for kind, _ in FENCE.findall(text)} <= set(KINDS), page
        blocks = "".join(block for _, block in FENCE.findall(text))
        for old, _, reason in INSTEAD.get(page.name, []):
            assert old in blocks, f"{page.name} has no {old!r} any more ({reason})"


def test_targets_of_make_on_the_pages_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in PAGES:
        for target in re.findall(r"\bmake ([a-z][a-z0-9-]*)\b", page.read_text(encoding="utf-8")):
            is_code = re.search(rf"[`\n]make {target}\b", page.read_text(encoding="utf-8"))
            assert not is_code or re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked, and a folder bin with its command."""
    site = unpacked([wheel], tmp_path_factory.mktemp("site"))
    (site / "bin").mkdir()
    for name, line in {"fpsim": "-m ipu.experiments.cli", "python": ""}.items():
        script = site / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {line} "$@"\n')
        script.chmod(0o755)
    return site


def prepare(folder: Path, page: str) -> None:
    """The reader's files."""
    for name, text in FILES.get(page, {}).items():
        (folder / name).write_text(text)
    if page == "verification.md":
        import numpy as np

        (folder / "sums.txt").write_text("3C00 3C00 4000 00\n7BFF 7BFF 7C00 05\n")
        (folder / "to_i32.txt").write_text("3FC00000 00000001 01\nBFC00000 FFFFFFFF 01\n")
        row = np.full((1, 4), 0x3F800000, np.uint32)
        np.savez(
            folder / "recorded.npz", a=row, b=row, c=np.zeros(1, np.uint32),
            d_fp32=np.full(1, 0x40800000, np.uint32),
        )


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_a_block_runs(task, site, tmp_path):
    installed = {library for library in HOME.values() if find_spec(library) is not None}
    if task.extra and HOME[task.extra] not in installed:
        pytest.skip(f"it needs {task.extra}; run: make {TARGETS[HOME[task.extra]]}")
    if not task.extra and installed:
        pytest.skip("it needs no framework; run: make test")
    prepare(tmp_path, task.page)
    outer = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TF_", "FPSIM_D"))}
    path = os.pathsep.join([str(site / "bin"), str(Path(sys.executable).parent), outer["PATH"]])
    allowed = dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1")
    file = tmp_path / {"sh": "lines.sh", "doctest": "page.txt"}.get(task.kind, "script.py")
    file.write_text(task.text)
    command = {
        "sh": ["bash", "-euo", "pipefail", file.name],
        "doctest": [sys.executable, "-m", "doctest", "-o", "NORMALIZE_WHITESPACE", file.name],
        "script": [sys.executable, file.name],
    }[task.kind]
    done = subprocess.run(
        command, cwd=tmp_path, env=outer | allowed | {"PYTHONPATH": str(site), "PATH": path},
        capture_output=True, text=True, check=False, timeout=600,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
