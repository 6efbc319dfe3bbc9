"""The table against torch's own samples of operations (differential).

A sample passes where every result is within rtol 2e-5 of torch's binary32 result, or no further
from torch's binary64 result than four times torch's binary32 result is.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from fnmatch import fnmatch

import numpy as np
import pytest

from tests.ipu.frontends.torch.framework import machine, torch
from tests.tiers import pick

pytest.importorskip("expecttest", reason="torch's samples need expecttest; run: make test-torch")
table = pytest.importorskip("ipu.frontends.torch.aten.table")
tree = torch.utils._pytree

#: Samples of each operation.
MOST = pick(1, 12, 12)
#: Every so many operations are tried, and their samples together are at least so many.
EVERY = pick(4, 1, 1)
FEWEST = pick(100, 3600, 3600)
#: Of torch's samples, as torch.testing has it.
SEED = 1234
#: Operations that are left out, as patterns of names, and why.
EXCLUDED = {
    "random": (
        "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal*",
        "nn.functional.*dropout*", "nn.functional.fractional_max_pool*", "nn.functional.rrelu",
        "pca_lowrank", "rand*", "svd_lowrank", "uniform",
    ),
    "values are not defined": ("empty*", "new_empty*", "linalg.pinv.singular"),
    "vectors have any phase": ("linalg.eig", "linalg.eigh", "linalg.svd", "svd"),
    "sparse tensors": ("sparse.*", "to_sparse"),
    "kernels of torch.nn, which are no aten operations": ("*linear_cross_entropy*",),
    "bfloat16, which the target lacks": ("bfloat16",),
}


def reason_against(name):
    """Why an operation is left out, or None."""
    return next((w for w, names in EXCLUDED.items() if any(fnmatch(name, n) for n in names)), None)


def samples(operation, *, gradients):
    """Samples of an operation, spread over those that torch has."""
    every = all_samples(operation, torch.float32, gradients=gradients)
    count = min(MOST, len(every))
    return [every[(2 * i + 1) * len(every) // (2 * count)] for i in range(count)]


def all_samples(operation, dtype, *, gradients=False):
    """Those of `operation.sample_inputs`, which takes most of its time to look for the test that
    asks and to seed devices that are not there.
    """
    samples_of_torch = iter(operation.sample_inputs_func(operation, "cpu", dtype, gradients))

    def seeded():
        random.seed(SEED)
        np.random.seed(SEED)  # noqa: NPY002  torch's samples draw from this generator
        torch.default_generator.manual_seed(SEED)
        return next(samples_of_torch, None)

    return list(iter(seeded, None))


def copied(sample, dtype):
    def copy(x):
        if not isinstance(x, torch.Tensor):
            return x
        wide = dtype if x.dtype == torch.float32 else x.dtype
        return x.detach().to(wide, copy=True).requires_grad_(x.requires_grad)

    return tree.tree_map(copy, (sample.input, sample.args, sample.kwargs))


def results(operation, sample, *, gradients, dtype=torch.float32):
    """Tensors that an operation returns, or its gradients."""
    x, args, kwargs = copied(sample, dtype)
    torch.manual_seed(0)
    out = operation(x, *args, **kwargs)
    if not gradients:
        return [y for y in tree.tree_leaves(out) if isinstance(y, torch.Tensor)]
    leaves = [a for a in tree.tree_leaves((x, args, kwargs)) if isinstance(a, torch.Tensor)]
    leaves = [a for a in leaves if a.requires_grad]
    outs = [y for y in tree.tree_leaves(out) if isinstance(y, torch.Tensor) and y.requires_grad]
    outs = [y for y in outs if y.is_floating_point()]
    if not outs or not leaves:
        return []
    generator = torch.Generator().manual_seed(0)
    slopes = [torch.rand(y.shape, generator=generator).to(y.dtype) + 0.5 for y in outs]
    result = torch.autograd.grad(outs, leaves, slopes, allow_unused=True)
    return [g for g in result if g is not None]


def is_close(got, want):
    if not isinstance(want, torch.Tensor) or got.shape != want.shape or got.dtype != want.dtype:
        return False
    size = want.abs().max().item() if want.numel() and want.dtype.is_floating_point else 0.0
    margin = 1e-6 * max(1.0, size if size < float("inf") else 1.0)
    return torch.allclose(got, want, rtol=2e-5, atol=margin, equal_nan=True)


def passes(operation, sample, got, want, *, gradients):
    if len(got) != len(want):
        return False
    if all(map(is_close, got, want)):
        return True
    wide = results(operation, sample, gradients=gradients, dtype=torch.float64)
    errors = [
        [(x.double() - y.double()).abs().max().item() for x, y in zip(z, wide, strict=True)]
        for z in (got, want)
    ]
    return all(a <= 4 * b for a, b in zip(*errors, strict=True))


def outcome(operation, *, gradients):
    """Samples of one operation that pass, differ, or are refused."""
    counted, message = Counter(), []
    for sample in samples(operation, gradients=gradients):
        try:
            want = results(operation, sample, gradients=gradients)
        except Exception:
            counted["torch refuses"] += 1
            continue
        try:
            with machine(f32_denormals="ieee") as session:
                got = results(operation, sample, gradients=gradients)
        except Exception as error:
            counted["refused"] += 1
            message.append(f"{operation.name}: {error}")
            continue
        kinds, native = (session.report()[key] for key in ("operations", "native"))
        assert native == 0, operation.name
        assert kinds["all"] == sum(kinds[k] for k in ("machine", "exact", "host", "integer"))
        right = passes(operation, sample, got, want, gradients=gradients)
        counted["pass" if right else "differ"] += 1
        if not right:
            message.append(f"{operation.name} differs")
    return counted, message


@pytest.mark.minutes
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("gradients", "share"), [(False, 0.95), (True, 0.9)])
def test_samples_of_torch(gradients, share):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db

    counted, message = Counter(), []
    for operation in op_db[::EVERY]:
        name = ".".join(filter(None, (operation.name, operation.variant_test_name)))
        if torch.float32 not in operation.dtypes or reason_against(name):
            continue
        if gradients and not operation.supports_autograd:
            continue
        comparisons, sentences = outcome(operation, gradients=gradients)
        counted += comparisons
        message += sentences
    ran = counted["pass"] + counted["differ"] + counted["refused"]
    print(dict(counted), *message, sep="\n")
    assert ran >= (FEWEST if not gradients else 300 * FEWEST // 400)
    assert counted["pass"] >= share * ran, message
    assert counted["differ"] == 0, message


def half_results(operation, sample, dtype):
    """Tensors of a float16 sample, computed in another type."""

    def copy(x):
        if isinstance(x, torch.Tensor):
            return x.detach().to(dtype if x.dtype == torch.float16 else x.dtype, copy=True)
        return dtype if x is torch.float16 else x

    x, args, kwargs = tree.tree_map(copy, (sample.input, sample.args, sample.kwargs))
    torch.manual_seed(0)
    out = operation(x, *args, **kwargs)
    return [y for y in tree.tree_leaves(out) if isinstance(y, torch.Tensor)]


def is_near(got, wide, native):
    """Within 2**-8 of the largest binary64 result, or twice as far from it as torch's binary16."""
    if got.dtype != native.dtype or got.shape != native.shape:
        return False
    if not wide.dtype.is_floating_point or not wide.numel():
        return True
    ordinary = wide.abs() < 65504
    error, allowed = ((x.double() - wide).abs()[ordinary] for x in (got, native))
    size = wide[ordinary].abs().max().item() if bool(ordinary.any()) else 0.0
    return bool((error <= torch.clamp(2 * allowed, min=size * 2.0**-8 + 2.0**-14)).all())


@pytest.mark.minutes
@pytest.mark.filterwarnings("ignore")
def test_binary16_samples_are_near_binary64():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db

    passed, message = 0, []
    for operation in op_db[::EVERY]:
        name = ".".join(filter(None, (operation.name, operation.variant_test_name)))
        # The series of a matrix's exponential is beyond binary64 for these samples.
        if torch.float16 not in operation.dtypes or reason_against(name) or name == "matrix_exp":
            continue
        every = all_samples(operation, torch.float16)
        sample = every[len(every) // 2]
        try:
            wide, native = (half_results(operation, sample, t) for t in (torch.float64, torch.half))
        except Exception:  # torch has no such kernel
            continue
        with machine(nanoo=True):
            got = half_results(operation, sample, torch.float16)
        right = all(is_near(*triple) for triple in zip(got, wide, native, strict=True))
        passed += right
        if not right:
            message.append(name)
    assert passed >= 450 // EVERY
    assert not message


def test_entries_are_overloads_of_torch():
    for name, entry in table.TABLE.items():
        base, _, overload = name.partition(".")
        assert overload in getattr(torch.ops.aten, base).overloads(), name
        assert entry.rounding


@pytest.mark.parametrize(
    ("operands", "dtype"),
    [
        ((torch.ones(2), 2), torch.float32),
        ((torch.ones(2).half(), torch.ones(())), torch.float16),
        ((torch.ones(2).half(), torch.ones(2)), torch.float32),
        ((torch.ones(2, dtype=torch.int64), 0.5), torch.float32),
        ((torch.ones(2).double(), torch.ones(2)), torch.float64),
        ((torch.ones(2), torch.ones((), dtype=torch.float64)), torch.float32),
    ],
)
def test_types_of_results_are_those_of_torch(operands, dtype):
    assert table.result_dtype(operands) == dtype
    assert (operands[0] * operands[1]).dtype == dtype
