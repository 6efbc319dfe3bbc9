"""Runs and reports in notebooks: what they say, without a script or a style of the page (law)."""

from __future__ import annotations

import html
import re

import numpy as np

from ipu.learn import nn
from ipu.learn.optim import SGD
from ipu.learn.train import Trainer
from ipu.run.native import machine
from ipu.run.pages.page import headline
from tests.experiments.browser import ask
from tests.ipu.run.runs import make_report, quiet_report


def test_a_report_says_what_hurt_first_with_counts_by_layer_and_a_picture():
    report = make_report()
    text = report._repr_html_()
    words = html.unescape(" ".join(re.sub("<[^>]*>", "", text).split()))
    assert headline(report) in words
    assert "net.a" in words
    assert "<svg" in text
    assert not re.findall(r"<(script|style|link|img)", text)
    variables = set(re.findall(r"var\((--\w+)\)", text))
    assert variables
    assert all(f"{name}:" in text for name in variables), "a notebook has no inks of a page"


def test_a_report_that_did_not_count_says_so_and_draws_nothing():
    text = quiet_report()._repr_html_()
    assert "<svg" not in text
    assert "<table" not in text


def test_words_of_a_program_cannot_become_markup():
    report = make_report()
    report["layers"]["<script>"] = report["layers"]["net.a"]
    assert "<script>" not in report._repr_html_()


def test_a_run_shows_what_its_report_shows():
    run = machine(policy="fp16", count=True)
    trainer = Trainer(lambda x: nn.dense(x, 3, "only"), SGD(0.1), run=run)
    trainer.step(np.ones((4, 8)), np.arange(4) % 3)
    text = run._repr_html_()
    assert "1 steps" in text
    assert text == run.report()._repr_html_()


def test_words_are_read_on_a_dark_notebook(tmp_path):
    """The picture brings its own ground."""
    page = tmp_path / "notebook.html"
    page.write_text("<!doctype html><body style='background:#111;color:#eee'>"
                    f"{make_report()._repr_html_()}</body>", encoding="utf-8")
    fill, ground = ask(page, tmp_path, """async () => {
      const text = document.querySelector("svg text");
      return [getComputedStyle(text).fill,
        getComputedStyle(text.closest("div")).backgroundColor]; }""", dark=True)
    assert fill in ("rgb(0, 0, 0)", "rgb(34, 34, 34)")
    assert ground == "rgb(255, 255, 255)"
