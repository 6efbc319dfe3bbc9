"""Other tools that round or compute in low precision, each imported only where it is installed.

A peer is (name with version, prepare); prepare(x, out) gives the call that is timed. Every tool
gets float32 in and gives float32 back where it can, so a packed type is converted there and back.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

import numpy as np

from fpsim.records.formats import Format
from fpsim.records.rounding import RNA, RNE, RTN, RTP, RTZ, SR, SR_EQUAL, Rounding
from fpsim.state.threads import get_threads
from ipu.experiments.bench.timing import Call

__all__ = ["arithmetic_peers", "is_alone", "rounding_peers"]

Prepare = Callable[..., Call]
Peer = tuple[str, Prepare]

#: Formats that other tools know by the numbers of their fields, laid out as IEEE 754 says.
IEEE_LIKE = ("ieee",)

TORCH = {
    "binary16": "float16", "bfloat16": "bfloat16", "e4m3fn": "float8_e4m3fn",
    "e5m2": "float8_e5m2", "f143": "float8_e4m3fnuz", "f152": "float8_e5m2fnuz",
}


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _name(package: str, distribution: str | None = None) -> str:
    return f"{package} {version(distribution or package)}"


def _torch_here() -> Any:
    """torch with as many threads as our kernels use."""
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(get_threads())
    return torch


def is_alone(peer: str) -> bool:
    """Whether a tool computes element by element on one thread; torch takes as many as we do."""
    return not peer.startswith("torch ")


def rounding_peers(fmt: Format, rounding: Rounding) -> Iterator[Peer]:
    """Tools that round float32 into this format and mode."""
    for peer in (_packed, _torch, _gfloat, _pychop, _qtorch, _apytypes):
        yield from peer(fmt, rounding)


def _packed(fmt: Format, rounding: Rounding) -> Iterator[Peer]:
    """numpy and ml_dtypes: to the storage type and back, nearest even."""
    if rounding != RNE or fmt.storage is None:
        return

    def prepare(x: Any, out: Any) -> Call:
        room = np.empty(x.shape, fmt.storage)

        def call() -> None:
            with np.errstate(all="ignore"):
                np.copyto(room, x, casting="unsafe")
                np.copyto(out, room, casting="unsafe")

        return call

    yield _name("numpy" if fmt.storage == np.float16 else "ml_dtypes"), prepare


def _torch(fmt: Format, rounding: Rounding) -> Iterator[Peer]:
    if rounding != RNE or fmt.name not in TORCH or not _installed("torch"):
        return

    def prepare(x: Any, out: Any) -> Call:
        torch = _torch_here()
        dtype, source, target = getattr(torch, TORCH[fmt.name]), *map(torch.from_numpy, (x, out))
        return lambda: target.copy_(source.to(dtype))

    yield _name("torch"), prepare


def _gfloat(fmt: Format, rounding: Rounding) -> Iterator[Peer]:
    modes = {"RNE": "TiesToEven", "RNA": "TiesToAway", "RTZ": "TowardZero", "RTP": "TowardPositive",
             "RTN": "TowardNegative", "SR": "Stochastic"}
    names = {"binary16": "binary16", "bfloat16": "bfloat16", "e4m3fn": "ocp_e4m3",
             "e5m2": "ocp_e5m2", "e2m3fn": "ocp_e2m3", "e3m2fn": "ocp_e3m2", "e2m1fn": "ocp_e2m1",
             }
    if rounding.name not in modes or fmt.name not in names or not _installed("gfloat"):
        return

    def prepare(x: Any, out: Any) -> Call:
        gfloat: Any = importlib.import_module("gfloat")
        formats: Any = importlib.import_module("gfloat.formats")
        info = getattr(formats, f"format_info_{names[fmt.name]}")
        mode = getattr(gfloat.RoundMode, modes[rounding.name])
        more = {}
        if isinstance(rounding, SR):
            r = rounding.random_bits(fmt)
            words = np.random.default_rng(0).integers(0, 1 << r, x.shape)
            more = {"srbits": words, "srnumbits": r}
        saturate = not (fmt.has_infinity or fmt.has_nan)
        return lambda: gfloat.round_ndarray(info, x, mode, sat=saturate, **more)

    yield _name("gfloat"), prepare


def _pychop(fmt: Format, rounding: Rounding) -> Iterator[Peer]:
    modes = {RNE: 1, RTP: 2, RTN: 3, RTZ: 4, SR_EQUAL: 6}
    mode = 5 if rounding.name == "SR" else modes.get(rounding)
    if mode is None or fmt.specials not in IEEE_LIKE or not _installed("pychop"):
        return

    def prepare(x: Any, out: Any) -> Call:
        pychop: Any = importlib.import_module("pychop")
        pychop.backend("numpy")
        chop = pychop.Chop(exp_bits=fmt.exponent_bits, sig_bits=fmt.precision - 1, rmode=mode)
        return lambda: chop(x)

    yield _name("pychop"), prepare


def _qtorch(fmt: Format, rounding: Rounding) -> Iterator[Peer]:
    mode = {"RNE": "nearest", "SR": "stochastic"}.get(rounding.name)
    if mode is None or fmt.specials not in IEEE_LIKE or not _installed("qtorch"):
        return

    def prepare(x: Any, out: Any) -> Call:
        torch = _torch_here()
        quant: Any = importlib.import_module("qtorch.quant")
        source = torch.from_numpy(x)
        return lambda: quant.float_quantize(
            source, exp=fmt.exponent_bits, man=fmt.precision - 1, rounding=mode
        )

    yield _name("qtorch"), prepare


def _apytypes(fmt: Format, rounding: Rounding) -> Iterator[Peer]:
    modes = {RNE: "TIES_EVEN", RNA: "TIES_AWAY", RTZ: "TO_ZERO", RTP: "TO_POS", RTN: "TO_NEG"}
    mode = "STOCH_WEIGHTED" if rounding.name == "SR" else modes.get(rounding)
    if mode is None or fmt.specials not in IEEE_LIKE or not _installed("apytypes"):
        return

    def prepare(x: Any, out: Any) -> Call:
        apytypes: Any = importlib.import_module("apytypes")
        wide = apytypes.APyFloatArray.from_array(x, 8, 23)
        quantization = getattr(apytypes.QuantizationMode, mode)
        # Its arrays hold any format, so the conversion to and from numpy is not its work here.
        return lambda: wide.cast(fmt.exponent_bits, fmt.precision - 1, quantization=quantization)

    yield _name("apytypes"), prepare


def arithmetic_peers(operation: str, fmt: Format) -> Iterator[tuple[str, Callable[[Any], Call]]]:
    """Tools that compute in this format's storage type, nearest even: numpy, ml_dtypes, torch."""
    if fmt.storage is not None and operation != "fma":

        def prepare(carriers: Any) -> Call:
            operands = [x.astype(fmt.storage) for x in carriers]
            ufunc, room = getattr(np, operation), np.empty_like(operands[0])

            def call() -> None:
                with np.errstate(all="ignore"):
                    ufunc(*operands, out=room)

            return call

        native = fmt.storage in (np.float16, np.float32)
        yield _name("numpy" if native else "ml_dtypes"), prepare
    if fmt.name in ("binary16", "bfloat16") and operation != "fma" and _installed("torch"):

        def prepare_torch(carriers: Any) -> Call:
            torch = _torch_here()
            dtype = getattr(torch, TORCH[fmt.name])
            operands = [torch.from_numpy(x).to(dtype) for x in carriers]
            room = torch.empty_like(operands[0])
            function = getattr(torch, operation)
            return lambda: function(*operands, out=room)

        yield _name("torch"), prepare_torch
