"""The decoder that `fpsim bench learned` times is the same in torch (law)."""

from importlib.util import find_spec

import pytest

from ipu.experiments.bench import learned
from ipu.experiments.bench.programs import Decoder
from ipu.experiments.bench.steps.decoders import embedded_text, learned_trainer
from ipu.experiments.bench.timing import Size, run
from ipu.run.native import machine

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None, reason="torch is not installed; run: make test-torch"
)

TINY = Decoder(8, 2, 1, 4)
#: torch's names of what `ipu.learn` calls weights, biases, gamma and beta.
NAMES = {"weights": "weight", "biases": "bias", "gamma": "weight", "beta": "bias"}


def test_torch_finds_the_loss_of_the_same_parameters():
    torch = pytest.importorskip("torch")
    trainer, (x, labels) = learned_trainer(TINY, machine("fp32")), embedded_text(TINY)
    loss = float(trainer.loss(x, labels).array)
    model = learned._decoder(torch.nn, TINY)
    parameters = dict(model.named_parameters())
    assert len(parameters) == len(trainer.variables)
    for variable in trainer.variables.values():
        _, *layers, name = variable.name.split("/")
        value = torch.tensor(variable.array.values, dtype=torch.float32)
        parameter = parameters[f"{_in_torch(layers)}.{NAMES[name]}"]
        parameter.data.copy_(value.T if value.ndim == 2 else value)
    logits = model(torch.tensor(x, dtype=torch.float32))
    wanted = torch.nn.functional.cross_entropy(logits, torch.tensor(labels))
    assert loss == pytest.approx(wanted.item(), rel=1e-5)


def _in_torch(layers):
    """block1/q is 1.q there; the last norm and the head stand behind the blocks."""
    if layers[0] in ("norm", "head"):
        return str(TINY.layers + (layers[0] == "head"))
    return ".".join([layers[0].removeprefix("block"), *layers[1:]])


def test_each_way_is_timed_beside_torch():
    records = list(run(learned.cases(Size(1, 1), quick=True), 1))
    assert [(r.format, r.data) for r in records] == [
        ("binary16", "ipu.learn"), ("binary16", "counted"), ("binary32", "ipu.learn"),
    ]
    assert all(r.peer.startswith("torch ") and r.ratio > 0 for r in records)
