"""The pipelining tutorial's own code runs, with imports and data changed (golden)."""

from __future__ import annotations

import re
import sys
import types

import pytest

from ipu.feed.data import mnist, or_digits
from tests.ipu.frontends.poptorch.framework import poptorch, torch
from tests.ipu.frontends.poptorch.listing import code_of, document
from tests.tiers import pick


def vision(images):
    """What the listing takes of torchvision, over these images."""

    class Normalize:
        def __init__(self, mean, deviation):
            self.mean, self.deviation = mean[0], deviation[0]

        def __call__(self, x):
            return (x - self.mean) / self.deviation

    class Compose:
        def __init__(self, steps):
            self.steps = steps

        def __call__(self, x):
            for step in self.steps:
                x = step(x)
            return x

    def to_tensor():
        return lambda image: torch.from_numpy(image).float().permute(2, 0, 1)

    class MNIST(torch.utils.data.Dataset):
        def __init__(self, folder, train, download, transform):
            own = images.learn if train else images.test
            self.images, self.labels, self.transform = own.values, own.labels, transform

        def __len__(self):
            return len(self.labels)

        def __getitem__(self, i):
            return self.transform(self.images[i]), int(self.labels[i])

    module = types.ModuleType("torchvision")
    module.datasets = types.SimpleNamespace(MNIST=MNIST)
    module.transforms = types.SimpleNamespace(
        ToTensor=to_tensor, Normalize=Normalize, Compose=Compose
    )
    return module


def run(code, images, capsys, **changes):
    """What the code leaves and prints, with other imports."""
    names = {"poptorch": poptorch, "torchvision": vision(images)}
    with pytest.MonkeyPatch.context() as patch:
        for name, module in names.items():
            patch.setitem(sys.modules, name, module)
        for name, value in changes.items():
            code, count = re.subn(rf"^{name} = .*$", f"{name} = {value}", code, flags=re.MULTILINE)
            assert count == 1, name
        space = {"__name__": "listing"}
        torch.manual_seed(0)
        exec(compile(code, "listing", "exec"), space)
    return space, capsys.readouterr().out


@pytest.mark.source("S2-04", "S2-08", "S2-15", "S2-30", "S2-32", "S2-37", "S2-38")
def test_the_listing_runs_on_the_data_at_hand(capsys):
    """All of it; where images are few a call has fewer updates than the 10 of the tutorial."""
    code = code_of(document("002"))
    images = or_digits(lambda: mnist("t10k:8000/2000"), (28, 28, 1))
    is_whole = pick(False, True, True) and len(images.learn) == 8000
    limit, iterations = (8000, 10) if is_whole else (800, 2)
    images = types.SimpleNamespace(
        learn=images.learn[:limit], test=images.test[: 2000 if is_whole else 320]
    )
    space, told = run(
        code, images, capsys, training_iterations=iterations,
        inference_iterations=100 if is_whole else 10,
    )
    assert [line for line in told.splitlines() if line.startswith("Epoch")] == [
        "Epoch 1/3", "Epoch 2/3", "Epoch 3/3",
    ]
    (accuracy,) = re.findall(r"Accuracy on test set: ([\d.]+)%", told)
    least = 94.0 if is_whole else 40.0
    assert float(accuracy) >= least
    model, inference = space["training_model"], space["inference_model"]
    assert model.compilations == inference.compilations == 1
    assert (model.plan.n_stages, model.plan.slots) == (4, 16)
    assert model.plan.offloaded == {"state"}
    assert len(space["training_data"]) == limit // (400 * iterations)
    assert model.report()["native"] == inference.report()["native"] == 0


@pytest.mark.source("S2-31")
def test_the_listings_accuracy_has_its_known_answer():
    space = {"torch": torch}
    code = code_of(document("002"))
    exec(code[code.index("def accuracy") : code.index("# Warning: impacts")], space)
    predictions = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.4, 0.6]])
    assert space["accuracy"](predictions, torch.tensor([1, 0, 1, 0, 0])) == 75.0
