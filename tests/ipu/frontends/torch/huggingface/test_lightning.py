"""Lightning's Trainer, unedited: fit, validate, predict, checkpoints (differential, law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.framework import machine, torch
from tests.ipu.frontends.torch.huggingface.programs import WAYS, bits, classifier, points

lightning = pytest.importorskip(
    "lightning", reason="lightning is not installed; run: make test-huggingface"
)
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{category}")
    for category in ("UserWarning", "DeprecationWarning", "FutureWarning")
]


class Module(lightning.LightningModule):
    """A classifier with what Lightning's first page shows."""

    def __init__(self):
        super().__init__()
        self.net = classifier()

    def training_step(self, batch, index):
        loss = self._loss(batch)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("validation", self._loss(batch))

    def predict_step(self, batch, index):
        return self.net(batch[0])

    def configure_optimizers(self):
        optimiser = torch.optim.AdamW(self.parameters(), lr=1e-2, eps=1e-4)
        return [optimiser], [torch.optim.lr_scheduler.StepLR(optimiser, 1, 0.5)]

    def _loss(self, batch):
        x, y = batch
        return torch.nn.functional.cross_entropy(self.net(x), y)


def trainer(folder, **options):
    return lightning.Trainer(
        accelerator="cpu", devices=1, logger=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=str(folder),
        **{"max_epochs": 2, "enable_checkpointing": False} | options,
    )


def loader():
    return torch.utils.data.DataLoader(points(), 8)


@pytest.mark.parametrize(
    "options", [{}, {"accumulate_grad_batches": 2, "gradient_clip_val": 0.5}], ids=str
)
def test_a_fit_follows_torch(options, tmp_path):
    def fit():
        run = trainer(tmp_path, **options)
        model = Module()
        run.fit(model, loader(), loader())
        scores = [float(run.callback_metrics[name]) for name in ("loss", "validation")]
        return scores, torch.cat(run.predict(model, loader())), run.global_step

    expected, outputs, steps = fit()
    with machine() as session:
        scores, predicted, _ = fit()
    assert scores == pytest.approx(expected, rel=2e-5)
    torch.testing.assert_close(predicted, outputs)
    report = session.report()
    assert (report["steps"], report["native"]) == (steps, 0)
    assert report["host"]["elements"] == 0


@pytest.mark.parametrize("way", WAYS)
def test_a_checkpoint_goes_on_bit_by_bit(way, tmp_path):
    models = []
    for epochs, checkpoint in ((2, None), (1, None), (2, tmp_path / "one.ckpt")):
        model = Module()
        with machine(**WAYS[way]):
            run = trainer(tmp_path, max_epochs=epochs, limit_val_batches=0)
            run.fit(model, loader(), ckpt_path=checkpoint)
            run.save_checkpoint(tmp_path / ("one.ckpt" if epochs == 1 else "two.ckpt"))
        models.append(bits(model))
    assert models[0] == models[2] != models[1]
