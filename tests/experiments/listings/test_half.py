"""The tutorial's listings on half precision run as printed (golden: what the tutorial says)."""

from __future__ import annotations

import pytest

from ipu.experiments.listings.half import LISTINGS
from tests.experiments.listings.runs import run
from tests.vectors import documents

BY_NAME = {listing.name: listing for listing in LISTINGS}


@pytest.mark.source("TensorFlow 1 tutorial on half precision, review of numerical issues")
@pytest.mark.parametrize(
    ("name", "printed"),
    [
        # The tutorial prints 0.0004833; the nearest binary16 numbers to it are 0.0004883 apart.
        ("swamped_a_little", ["0.0004 + 0.25 - 0.25 =  0.0004883"]),
        ("swamped", ["0.0001 + 0.25 - 0.25 =  0.0"]),
        ("stalled_sum", ["Sum:  0.25"]),
    ],
)
def test_sums_lose_what_the_tutorial_says(name, printed, tmp_path):
    assert run(BY_NAME[name], tmp_path).splitlines() == printed


@pytest.mark.source("TensorFlow 1 tutorial on half precision, review of numerical issues")
def test_the_smaller_a_number_the_more_of_it_is_lost(tmp_path):
    rows = [
        row.split(", relative") for row in run(BY_NAME["swamped_by_degrees"], tmp_path).splitlines()
    ]
    assert [sum_ for sum_, _ in rows] == [
        "0.2000 + 0.25 - 0.25 = 0.1999512",
        "0.0200 + 0.25 - 0.25 = 0.0200195",
        "0.0020 + 0.25 - 0.25 = 0.0019531",
        "0.0002 + 0.25 - 0.25 = 0.0002441",
    ]
    errors = [abs(float(error.split(": ")[1].rstrip("%"))) for _, error in rows]
    assert errors == pytest.approx([0, 0.1, 2.3, 22.1], abs=0.11)


@pytest.mark.source("TensorFlow 1 tutorial on half precision, method 1")
def test_stochastic_sums_come_out_near_one(tmp_path):
    run(BY_NAME["stochastic_sums"], tmp_path)


NAMES = ("method_2_dense", "custom_getter", "scaled_loss", "scaled_rate", "exceptions",
         "stable_statistics", "half_partials")


@pytest.mark.source("TensorFlow 1 tutorial on half precision")
@pytest.mark.parametrize("name", NAMES)
def test_listing_runs_as_printed(name, tmp_path):
    run(BY_NAME[name], tmp_path)


def test_a_default_before_a_positional_argument_is_no_python():
    with pytest.raises(SyntaxError):
        compile(BY_NAME["convolution"].program(documents()), "listing", "exec")


@pytest.mark.source("X-09")
def test_the_fragment_lacks_a_name():
    """It is the one that the listing is told with; the other names are earlier listings'."""
    listing = BY_NAME["getter_in_a_scope"]
    code = compile(listing.program(documents()), "listing", "exec")
    body = next(constant for constant in code.co_consts if hasattr(constant, "co_names"))
    earlier = {"tf", "variable_scope", "model_function", "loss_function", "fp32_parameter_getter"}
    missing, _, told = listing.broken.partition(" ")
    assert told == "is not defined"
    assert missing in set(body.co_names) - earlier
