"""Ways of an Array in and out: files, pickles, ndarrays, series, other formats, one number, figures
(**corners**; files and pickles **exhaustive** to 16 bits)."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import fpsim as fp
from fpsim.records.formats import CATALOGUE

HALF = fp.Context(fp.BINARY16, asarray="allow")
MATRIX = HALF.array(np.arange(12).reshape(3, 4) / 4 - 1)
VECTOR = HALF.array([3.0, -1.0, 0.0, 2.5, 3.0, -0.5])

FORMATS = [fmt for fmt in CATALOGUE.values() if isinstance(fmt, fp.Format)]


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_files_and_pickles_give_every_code_back(fmt: fp.Format, tmp_path: Path) -> None:
    context = fp.Context(fmt)
    n = min(fmt.n_codes, 1 << 16)
    step = fmt.n_codes // n
    codes = (np.arange(n, dtype=np.uint64) * step).astype(fmt.code_dtype).reshape(2, -1)
    x = context.unpack(codes)
    np.save(tmp_path / "x.npy", x)
    back = context.unpack(np.load(tmp_path / "x.npy", allow_pickle=False))
    assert np.array_equal(back.codes(), x.codes())
    for other in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x)):
        assert np.array_equal(other.codes(), x.codes())
        assert other.context.core.settings == context.core.settings
        assert not np.shares_memory(other, x)
    assert copy.deepcopy(x).context is context
    assert np.array_equal(context.unpack(x.to_numpy()).codes(), x.codes())


def test_storage_of_another_format_is_refused() -> None:
    with pytest.raises(TypeError, match="binary16 is stored as float16"):
        HALF.unpack(fp.Context(fp.BFLOAT16).array([1.0]).to_numpy())


def test_a_pickled_context_goes_on_where_it_was() -> None:
    context = fp.Context(fp.BINARY16, rounding=fp.SR(8), seed=9, count=True)
    x = context.array(np.full(64, 0.1))
    twin = pickle.loads(pickle.dumps(x))
    assert twin.context.flags == context.flags
    assert (twin + 0.1).codes().tolist() == (x + 0.1).codes().tolist()
    pair = pickle.loads(pickle.dumps((x, x)))
    assert pair[0].context is pair[1].context


def test_full_ones_arange_and_linspace_round_once() -> None:
    assert HALF.full((2, 2), 0.1).values.tolist() == [[np.float16(0.1)] * 2] * 2
    assert HALF.ones(3).values.tolist() == [1.0] * 3
    assert np.array_equal(HALF.arange(5).values, np.arange(5))
    assert np.array_equal(HALF.arange(2, 9, 3).values, np.arange(2, 9, 3))
    assert np.array_equal(HALF.arange(1, -1, -0.25).values, np.arange(1, -1, -0.25))
    assert (
        HALF.arange(3, 3).shape == HALF.arange(5, 2).shape == HALF.linspace(0, 1, 0).shape == (0,)
    )
    assert np.array_equal(HALF.linspace(-1, 1, 5).values, np.linspace(-1, 1, 5))
    assert np.array_equal(HALF.linspace(0, 1, 4, endpoint=False).values, [0, 0.25, 0.5, 0.75])
    # k * step is exact before it is rounded: no sum of roundings, no product of a rounded step.
    tenths = HALF.arange(0, 100, 0.1)
    step = Fraction(0.1)
    expected = [
        HALF.decimal(f"{k * step.numerator}/{step.denominator}").item() for k in range(1000)
    ]
    assert tenths.tolist() == expected
    thirds = HALF.linspace(0, 1, 7).tolist()
    assert thirds == [HALF.decimal(f"{k}/6").item() for k in range(7)]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: HALF.arange(0, 1, 0), ValueError, "step=0"),
        (lambda: HALF.arange(0, np.inf), ValueError, "stop=inf is not finite"),
        (lambda: HALF.linspace(0, 1, -1), ValueError, "num=-1"),
        (lambda: HALF.linspace(0, 1, 2.5), TypeError, "num=2.5"),
        (lambda: HALF.linspace("a", 1), TypeError, "start='a' is no number"),
        (lambda: HALF.full(2, "a"), TypeError, "is not an Array"),
    ],
)
def test_impossible_series_are_refused(call, kind, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(kind, match=message):
        call()


def test_an_array_becomes_an_ndarray_exactly_or_not_at_all() -> None:
    x = fp.Context(fp.BFLOAT16, asarray="allow").array([0.1, 3.0])
    assert np.array_equal(np.asarray(x), x.values)
    assert np.asarray(x).dtype == np.float32
    assert not np.asarray(x).flags.writeable
    assert not np.shares_memory(np.array(x), x.carrier)
    assert np.array_equal(np.asarray(x, np.float64), x.values)
    assert np.asarray(x, x.dtype).dtype == x.dtype
    for dtype in (np.float16, np.int32, bool, complex):
        with pytest.raises(TypeError, match="does not hold the values of bfloat16"):
            np.asarray(x, dtype)
    with pytest.raises(TypeError, match="; take float64, or convert"):
        np.asarray(fp.Context(fp.BINARY64).array([0.1]), np.float32)


def test_conversions_by_name_and_storage_type() -> None:
    x = HALF.array([1.5, -2.7, 300.0])
    assert x.to("bfloat16").format == x.to(fp.BFLOAT16).format == fp.BFLOAT16
    assert x.to("bfloat16").codes().tolist() == x.to(fp.BFLOAT16).codes().tolist()
    assert x.astype(np.float32).format == x.astype("binary32").format == fp.BINARY32
    assert x.astype(np.int32).tolist() == [1, -2, 300]
    assert x.astype(np.int32).dtype == np.int32
    assert x.astype(bool).tolist() == [True] * 3
    assert x.astype(fp.BINARY16) is not x
    assert x.astype(fp.BINARY16, copy=False) is x
    with pytest.raises(ValueError, match="Did you mean 'bfloat16'"):
        x.to("bfloat61")
    with pytest.raises(TypeError, match="complex128 is no storage type"):
        x.astype(np.complex128)


def test_one_number_and_no_number() -> None:
    one = HALF.array(2.75)
    assert (int(one), float(one), complex(one), bool(one), one.item()) == (
        2,
        2.75,
        2.75,
        True,
        2.75,
    )
    assert (f"{one}", f"{one:08.3f}", f"{VECTOR[:1]}") == (
        "2.75",
        "0002.750",
        "Array([3.], binary16)",
    )
    with pytest.raises(TypeError, match="no elements to iterate"):
        list(one)
    for call in (lambda: float(VECTOR), lambda: int(VECTOR), lambda: bool(VECTOR)):
        with pytest.raises(ValueError, match=r"shape \(6,\) is not one number"):
            call()
    with pytest.raises(TypeError, match="for one number"):
        format(VECTOR, ".3f")
    with pytest.raises(TypeError, match="len"):
        len(one)


def test_an_empty_array_shows_its_shape() -> None:
    assert repr(HALF.zeros((0, 3))) == "Array([], shape=(0, 3), binary16)"
    assert repr(HALF.zeros(0)) == "Array([], binary16)"


def test_matplotlib_draws_an_array() -> None:
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    points = axes.scatter(VECTOR, VECTOR, c=VECTOR)
    assert np.array_equal(points.get_offsets()[:, 0], VECTOR.values)
    image = axes.imshow(MATRIX)
    assert np.array_equal(image.get_array(), MATRIX.values)
    (line,) = axes.plot(VECTOR)
    assert np.array_equal(line.get_ydata(), VECTOR.values)
    axes.hist(VECTOR)
    axes.fill_between(np.arange(6), VECTOR, VECTOR)
    figure.canvas.draw()
    plt.close(figure)


@pytest.mark.parametrize("name", ["binary16", "bfloat16", "f143", "binary32", "binary64"])
def test_pyplot_reads_the_values_of_every_format(name: str) -> None:
    """scatter, imshow, plot, hist and colours take Arrays; bar and error bars take x.values."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    context = fp.Context(fp.find_format(name), asarray="allow")
    x, y = context.array([3.1, -1.0, 0.0, 2.5]), context.array([0.1, 1.0, 2.0, 4.0])
    picture = context.array(np.linspace(0, 1, 27).reshape(3, 3, 3))
    plt.figure()
    points = plt.scatter(x, y, s=y, c=x)
    assert np.array_equal(points.get_offsets(), np.stack([x.values, y.values], axis=1))
    assert np.array_equal(points.get_array(), x.values)
    image = plt.imshow(picture)
    assert np.array_equal(image.get_array(), picture.values)
    assert np.array_equal(plt.plot(x, y)[0].get_xydata()[:, 1], y.values)
    counts, _, _ = plt.hist(x, bins=[-2, 1, 4])
    assert counts.tolist() == [2, 2]
    plt.colorbar(points)
    for draw in (plt.bar, lambda x, y: plt.errorbar(x, y, yerr=y)):
        with pytest.raises(TypeError, match="convert"):
            draw(x, y)
        draw(x.values, abs(y).values)
    plt.gcf().canvas.draw()
    plt.close("all")


def test_an_array_of_a_larger_machine_comes_back_in_a_plain_context() -> None:
    class Machine(fp.Context):
        """A context that belongs to something that cannot be pickled."""

    machine = Machine(fp.BINARY16, rounding="RTZ")
    machine.owner = lambda: None  # type: ignore[attr-defined]
    x = pickle.loads(pickle.dumps(machine.array([0.1])))
    assert type(x.context) is fp.Context
    assert x.context.core.settings == machine.core.settings
