"""The same bits on every machine, with any number of threads and any memory layout (differential).

Other processes compile the kernels for a processor with AVX2, and for a plain x86-64-v2: no AVX, no
fused multiply-add, no half-precision converts; numpy's own loops are theirs too. They run the
digests in every state of the status register. Importing compiles nothing and leaves MXCSR alone.
"""

from __future__ import annotations

import ast
import re
import shutil

import numpy as np
import pytest
from llvmlite import binding, ir

from fpsim.context import Context
from fpsim.elementwise.apply import apply
from fpsim.kernels.compiling import cache_folder
from fpsim.records.formats import BINARY16, BINARY32, BINARY64
from fpsim.records.rounding import RNE, SR
from fpsim.records.settings import Settings
from fpsim.state.bits import Philox
from fpsim.state.draws import Draw
from fpsim.state.threads import get_threads, set_threads
from tests import digests, machine
from tests.processors import (
    LEVELS,
    ROOT,
    STATES,
    X86,
    folder,
    is_all,
    is_here,
    lacks,
    python,
    results,
)
from tests.test_digests import IN_STATES
from tests.tiers import reaches

PLAIN = LEVELS["baseline"]

#: A symbol that calls a platform's fused multiply-add, as compilers leave it in an object file.
CALLS_FMA = re.compile(rb"\0(?:fmaf?|__fma\w*)\0")


# Processors --------------------------------------------------------------------------------------


#: Levels below this machine's own. Of that one tests/test_digests.py has the bits in every state;
#: its kernels are compiled anew, under the name of the level, in the deep tier alone.
BELOW = [
    pytest.param(name, marks=[pytest.mark.tier("deep")] if is_all(level) else [])
    for name, level in LEVELS.items()
]


@pytest.mark.minutes
@pytest.mark.parametrize("name", BELOW)
def test_every_processor_gives_the_same_bits_in_every_state(name):
    # One process for a level. Its first state flushes: constants are made under it too.
    level = LEVELS[name]
    if not is_here(level):
        pytest.skip(f"this machine has not what {name} has")
    printed = results(name, ["flush_and_denormals", *STATES])
    assert (printed["cpu"], printed["features"]) == (level.cpu, level.features)
    assert not set(printed["numpy"]) & set(lacks(level))
    here, recorded = machine.everything_here(reaches("full")), digests.golden()
    assert len(here) >= 12
    assert printed["hashes"] == here
    assert set(printed["digests"]) == set(STATES)
    for state, by_case in printed["digests"].items():
        differing = [case for case, digest in by_case.items() if recorded[case] != digest]
        assert list(by_case) == IN_STATES
        assert differing == [], f"on {name}, {state}"
    if level.apart:
        compiled = list((folder(level) / "fpsim" / cache_folder().name).rglob("*.nbc"))
        assert len(compiled) >= 10
        # No kernel calls the platform's fused multiply-add.
        assert [path.name for path in compiled if CALLS_FMA.search(path.read_bytes())] == []


@pytest.mark.skipif(not X86, reason="this machine is no x86-64")
def test_such_a_call_would_be_seen():
    double = ir.DoubleType()
    module = ir.Module(name="fused")
    module.triple = binding.get_default_triple()
    ternary = ir.FunctionType(double, [double] * 3)
    fused = ir.Function(module, ternary, "user")
    intrinsic = module.declare_intrinsic("llvm.fma", [double], ternary)
    builder = ir.IRBuilder(fused.append_basic_block())
    builder.ret(builder.call(intrinsic, fused.args))
    parsed = binding.parse_assembly(str(module))
    target = binding.Target.from_triple(module.triple)
    for cpu, features, calls in ((PLAIN.cpu, PLAIN.features, True), ("x86-64-v3", "+fma", False)):
        code = target.create_target_machine(cpu=cpu, features=features).emit_object(parsed)
        assert bool(CALLS_FMA.search(code)) == calls


#: Functions of numpy whose results on floats differ by the vectors of the processor, where there
#: are signalling NaNs or several NaNs; tables name them, as what an Array offers in their place.
BY_VECTORS = {"fmax", "fmin", "nanmax", "nanmin", "sort", "partition"}
TABLES = {"array_functions.py", "array_namespace.py"}


def test_nothing_uses_a_loop_of_numpy_that_depends_on_the_vectors():
    paths = [p for name in ("fpsim", "ipu") for p in (ROOT / name).rglob("*.py")]
    assert len(paths) > 400
    used = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in paths if path.name not in TABLES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in BY_VECTORS
        and isinstance(node.value, ast.Name) and node.value.id == "np"
    ]
    assert used == [], "compare fpsim.elementwise.order.keys, or use largest_along"


@pytest.mark.parametrize("other", [0x7FF8 << 48 | 7, 0x7FF0 << 48 | 1, 0xFFF8 << 48])
def test_the_place_of_two_nans_does_not_show_in_binary64(other):
    context, nans = Context(BINARY64), (0x7FF8 << 48 | 5, other)
    for n in (1, 2, 3, 5, 8, 17, 33):
        x, y = (context.wrap(np.full(n, nan, np.uint64).view(np.float64)) for nan in nans)
        for z in (x + y, x * y, y / x, x - y):
            assert set(z.codes().tolist()) == {0x7FF8 << 48}


# Threads and memory ------------------------------------------------------------------------------

CALLS = [
    ("convert", BINARY16, SR(13)), ("convert", BINARY16, RNE), ("add", BINARY16, SR(13)),
    ("subtract", BINARY32, SR()),
]


@pytest.mark.parametrize(("operation", "fmt", "rounding"), CALLS)
def test_threads_do_not_show(operation, fmt, rounding):
    # Long enough that every kernel is shared out, and no multiple of anything.
    operands = [np.resize(x, 2_100_001) for x in machine.inputs(operation, fmt)]
    settings, before, results = Settings(fmt, rounding), get_threads(), []
    try:
        for threads in (1, 2, 3):
            set_threads(threads)
            out, flags = apply(
                operation, operands, settings, bits=Draw(np.uint64(9), np.uint64(1), None)
            )
            results.append((machine.digest(out), flags))
    finally:
        set_threads(before)
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(("operation", "fmt", "rounding"), CALLS)
def test_memory_layout_does_not_show(operation, fmt, rounding):
    operands = [x[:39_999].reshape(3, 13_333) for x in machine.inputs(operation, fmt)]
    settings, marks = Settings(fmt, rounding), np.zeros((3, 13_333), np.uint8)
    out, flags = apply(
        operation,
        operands,
        settings,
        bits=Draw(np.uint64(9), np.uint64(0), None),
        element_flags=marks,
    )
    for strange in (spread_out, transposed, read_only):
        room, others = np.zeros((3, 13_333), np.uint8), [strange(x) for x in operands]
        got, raised = apply(
            operation,
            others,
            settings,
            bits=Draw(np.uint64(9), np.uint64(0), None),
            element_flags=room,
        )
        assert raised == flags
        assert machine.digest(got, room) == machine.digest(out, marks)
        target = spread_out(np.zeros_like(out))
        apply(operation, others, settings, bits=Draw(np.uint64(9), np.uint64(0), None), out=target)
        assert machine.digest(target) == machine.digest(out)


def spread_out(x: np.ndarray) -> np.ndarray:
    """Every second element of a longer array."""
    wide = np.zeros((x.shape[0], 2 * x.shape[1]), x.dtype)
    wide[:, ::2] = x
    return wide[:, ::2]


def transposed(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.T).T


def read_only(x: np.ndarray) -> np.ndarray:
    other = x.copy()
    other.flags.writeable = False
    return other


def test_short_arrays_begin_like_long_ones():
    (x,), settings = machine.inputs("convert", BINARY16), Settings(BINARY16, SR(13))
    complete, _ = apply(
        "convert", (x[:5000],), settings, bits=Draw(np.uint64(4), np.uint64(0), None)
    )
    for n in (1, 2, 15, 16, 17, 127, 129, 1023, 1025, 4099):
        part, _ = apply("convert", (x[:n],), settings, bits=Draw(np.uint64(4), np.uint64(0), None))
        assert machine.digest(part) == machine.digest(complete[:n])


# The compilation cache ---------------------------------------------------------------------------

SPAWN = """
import fpsim
print(fpsim.Philox(42).spawn(0).seed, fpsim.kernels.compiling.cache_folder().name)
"""


@pytest.mark.tier("full")
def test_an_edited_callee_is_compiled_anew(tmp_path):
    # The compiled function stands in words.py, its callee in philox.py.
    shutil.copytree(
        ROOT / "fpsim", tmp_path / "fpsim", ignore=shutil.ignore_patterns("__pycache__")
    )
    places = {"PYTHONPATH": str(tmp_path), "FPSIM_CACHE_DIR": str(tmp_path / "cache")}
    first = python("-P", "-c", SPAWN, **places).split()
    assert int(first[0]) == Philox(42).spawn(0).seed
    callee = tmp_path / "fpsim" / "kernels" / "random" / "philox.py"
    text = callee.read_text()
    assert "0x9E3779B9" in text
    callee.write_text(text.replace("0x9E3779B9", "0x9E3779B8"))
    second = python("-P", "-c", SPAWN, **places).split()
    assert first[0] != second[0]
    assert first[1] != second[1]
    assert {p.name for p in (tmp_path / "cache" / "fpsim").iterdir()} == {first[1], second[1]}


IMPORT_EVERYTHING = """
import ctypes, importlib, importlib.util, mmap, pkgutil, platform
from numba.core import event

def mxcsr():
    if platform.machine() not in ("x86_64", "AMD64"):
        return 0
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(bytes.fromhex("0fae1fc3"))  # stmxcsr [rdi]; ret
    word = ctypes.c_uint32()
    code = ctypes.c_char.from_buffer(page)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(ctypes.addressof(code))(ctypes.addressof(word))
    return word.value & ~0x3F  # without the sticky flags

extras = ["fpsim.tf", "fpsim.torch"]
if importlib.util.find_spec("bitwuzla") is None:
    extras.append("fpsim.judge.proofs")
before = mxcsr()
with event.install_recorder("numba:compile") as compilations:
    import fpsim
    for module in pkgutil.walk_packages(fpsim.__path__, "fpsim."):
        if not module.name.startswith(tuple(extras)):
            importlib.import_module(module.name)
imported, compiled = mxcsr(), len(compilations.buffer)
with event.install_recorder("numba:compile") as compilations:
    fpsim.Philox(1).spawn(0)
print(before == imported == mxcsr(), compiled, len(compilations.buffer) > 0)
"""


def test_importing_compiles_nothing_and_leaves_the_processor_alone(tmp_path):
    message = python("-c", IMPORT_EVERYTHING, FPSIM_CACHE_DIR=str(tmp_path))
    assert message.split() == ["True", "0", "True"]
