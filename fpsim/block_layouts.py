"""Codes and scales of blocks to and from other memory layouts.

Codes and scales of a `BlockArray` are plain uint8 (or float32) arrays of NumPy, which speak DLPack:
`torch.from_dlpack(x.codes)` shares their memory, and `from_codes` takes what has `__dlpack__`.

layout     codes                                             scales
torchao    as they are (rows, bytes); E4M3 and E5M2 a byte   (rows, blocks), or tiles
dense      six bits without gaps, the first in the low bits  (rows, blocks)
tiles      -                                                 128 x 4 of them in 512 bytes

Source    torchao 36027d8, mx_tensor.py and to_blocked; cuBLAS 12.9 documentation, "1D block scaling
          factors layout"; OCP MX 1.0 leaves the order in memory open.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.block_array import BlockArray, checked_axis, storage_axes
from fpsim.records.blocks import Block, find_block
from fpsim.records.formats import Format

__all__ = ["from_codes", "from_dense", "from_tiles", "from_torchao", "to_dense", "to_tiles",
           "to_torchao"]


def from_codes(
    codes: Any, scales: Any, block: Block | str, shape: tuple[int, ...] | None = None,
    axis: int = -1, tensor_amax: float | None = None,
) -> BlockArray:
    """A BlockArray around codes and scales that something else made, as they are stored.

    codes, scales   uint8 arrays (binary32 scales float32), or what has `__dlpack__`.
    shape           of the numbers; None: that of the codes, which then have the axis last.
    tensor_amax     largest magnitude of the tensor, where the block's scales are relative to one.

    Raises    ValueError for sizes that do not belong together, and for codes that are none.

    >>> x = from_codes(np.uint8([[0x22] * 16]), np.uint8([[128]]), "mxfp4")
    >>> x.shape, x.values[0, :2].tolist()
    ((1, 32), [2.0, 2.0])
    """
    record = find_block(block)
    bytes_, stored_scales = _memory(codes, "codes"), _memory(scales, "scales")
    kind = np.float32 if isinstance(record.scale, Format) else np.uint8
    for name, array, dtype in (("codes", bytes_, np.uint8), ("scales", stored_scales, kind)):
        if array.dtype != dtype:
            raise TypeError(
                f"{name} have dtype {array.dtype}; block {record} stores {np.dtype(dtype)}"
            )
    columns = bytes_.shape[-1] * (2 if record.packed else 1)
    numbers = (*bytes_.shape[:-1], columns) if shape is None else tuple(shape)
    axis = checked_axis(axis, len(numbers))
    stored = tuple(numbers[i] for i in storage_axes(len(numbers), axis))
    if stored != (*bytes_.shape[:-1], columns):
        raise ValueError(
            f"codes of shape {bytes_.shape} hold {(*bytes_.shape[:-1], columns)} numbers with the "
            f"axis of blocks last; shape={numbers}, axis={axis} needs {stored}"
        )
    expected = scales_shape(stored, record)
    if stored_scales.shape != expected:
        raise ValueError(
            f"scales have shape {stored_scales.shape}; blocks of {record} in {stored} numbers have "
            f"{expected}"
        )
    if (tensor_amax is None) != (record.tensor_scale is None):
        raise ValueError(
            f"tensor_amax={tensor_amax} and block {record}: give it where scales are relative to "
            "one of the tensor, and only there"
        )
    n_codes = record.element.n_codes
    if n_codes < (16 if record.packed else 256) and bytes_.size and bytes_.max() >= n_codes:
        raise ValueError(
            f"codes reach {bytes_.max()}; elements of {record} have {record.element.bits} bits in "
            f"the low end of a byte, so give 0 to {n_codes - 1}"
        )
    return BlockArray(bytes_, stored_scales, record, numbers, axis, tensor_amax)


def _memory(array: Any, name: str) -> NDArray[Any]:
    if not isinstance(array, np.ndarray) and hasattr(array, "__dlpack__"):
        array = np.from_dlpack(array)
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        raise TypeError(f"{name} are {type(array).__name__}; give an array of uint8")
    return array


def scales_shape(stored: tuple[int, ...], block: Block) -> tuple[int, ...]:
    """Shape of the scales of numbers that are stored in this shape.

    Raises    ValueError where blocks do not divide the numbers.
    """
    wide = max(1, stored[-1]) if block.elements is None else block.elements
    tall = 1
    if len(stored) > 1:
        tall = max(1, stored[-2]) if block.rows is None else block.rows
    rows = stored[-2:-1]
    if stored[-1] % wide or (rows and rows[0] % tall):
        raise ValueError(f"blocks of {block} do not divide numbers stored as {stored}")
    return (*stored[:-2], *(r // tall for r in rows), stored[-1] // wide)


# torchao --------------------------------------------------------------------------------------


def to_torchao(x: BlockArray, tiles: bool = False) -> dict[str, Any]:
    """What torchao's MXTensor and NVFP4Tensor hold: qdata, scale, per_tensor_scale, block_size.

    tiles   scales in the order of the hardware (`to_tiles`), as is_swizzled_scales says there.

    >>> import fpsim as fp
    >>> held = to_torchao(fp.quantize(np.ones((4, 64)), "nvfp4"))
    >>> held["qdata"].shape, held["scale"].shape, held["per_tensor_scale"] * 2688 == 1
    ((4, 32), (4, 4), np.True_)
    """
    if x.block.rows != 1:
        raise ValueError(f"block={x.block} has rows and columns; torchao's tensors have 1 x n")
    scale = to_tiles(x.scales) if tiles else x.scales
    of_tensor = None if x.tensor_amax is None else np.float32(x.tensor_scale)
    return {
        "qdata": x.codes, "scale": scale, "per_tensor_scale": of_tensor,
        "block_size": x.block.elements, "elem_dtype": x.block.element.name,
    }


def from_torchao(
    qdata: Any, scale: Any, block: Block | str, per_tensor_scale: float | None = None,
    tiles: bool = False,
) -> BlockArray:
    """A BlockArray of what a torchao tensor holds, as uint8 (`tensor.qdata.view(torch.uint8)`)."""
    record = find_block(block)
    codes, scales = _memory(qdata, "qdata"), _memory(scale, "scale")
    if tiles:
        columns = codes.shape[-1] * (2 if record.packed else 1)
        scales = from_tiles(scales, scales_shape((*codes.shape[:-1], columns), record))
    amax = None
    if per_tensor_scale is not None:
        amax = float(per_tensor_scale) * record.element.max * record.bound
    return from_codes(codes, scales, record, tensor_amax=amax)


# Tiles of scales ------------------------------------------------------------------------------


def to_tiles(scales: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Scales (rows, blocks) as block-scaled matrix units read them: tiles of 128 rows and 4 blocks.

    In a tile of 512 bytes scale (r, c) stands at 16 (r mod 32) + 4 (r div 32) + c; tiles follow by
    rows. What fills up the last ones is zero.

    >>> tiles = to_tiles(np.arange(8, dtype=np.uint8).reshape(2, 4))
    >>> tiles.size, tiles[:4].tolist(), tiles[16:20].tolist()
    (512, [0, 1, 2, 3], [4, 5, 6, 7])
    """
    if scales.ndim != 2:
        raise ValueError(f"scales have shape {scales.shape}; tiles are made of a matrix")
    rows, columns = scales.shape
    down, across = -(-rows // 128), -(-columns // 4)
    whole = np.zeros((down * 128, across * 4), scales.dtype)
    whole[:rows, :columns] = scales
    parts = whole.reshape(down, 4, 32, across, 4).transpose(0, 3, 2, 1, 4)
    return np.ascontiguousarray(parts).reshape(-1)


def from_tiles(tiles: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Scales of this shape out of their tiles.

    Raises    ValueError for another number of bytes than the tiles of this shape have.
    """
    rows, columns = math.prod(shape[:-1]), shape[-1]
    down, across = -(-rows // 128), -(-columns // 4)
    if tiles.size != down * across * 512:
        raise ValueError(
            f"tiles have {tiles.size} bytes; scales of shape {shape} have {down * across * 512}"
        )
    parts = tiles.reshape(down, across, 32, 4, 4).transpose(0, 3, 2, 1, 4)
    whole = parts.reshape(down * 128, across * 4)
    return np.ascontiguousarray(whole[:rows, :columns]).reshape(shape)


# Dense codes ----------------------------------------------------------------------------------


def to_dense(x: BlockArray) -> NDArray[np.uint8]:
    """Codes without gaps, along the axis of blocks: the first in the low bits of the first byte.

    Four numbers of six bits take three bytes; codes of four and eight bits are as in `codes`.

    >>> import fpsim as fp
    >>> to_dense(fp.quantize(np.ones((2, 32)), "mxfp6")).shape
    (2, 24)
    """
    bits = x.block.element.bits
    if bits in (4, 8):
        return x.codes
    digits = np.unpackbits(x.codes[..., None], axis=-1, bitorder="little")[..., :bits]
    flat = digits.reshape(*x.codes.shape[:-1], bits * x.codes.shape[-1])
    return np.packbits(flat, axis=-1, bitorder="little")


def from_dense(
    dense: Any, scales: Any, block: Block | str, shape: tuple[int, ...] | None = None,
    axis: int = -1, tensor_amax: float | None = None,
) -> BlockArray:
    """A BlockArray of codes without gaps; the other arguments are those of `from_codes`."""
    record, packed = find_block(block), _memory(dense, "dense")
    bits = record.element.bits
    if bits in (4, 8):
        return from_codes(packed, scales, record, shape, axis, tensor_amax)
    n = packed.shape[-1] * 8 // bits
    digits = np.unpackbits(packed, axis=-1, bitorder="little")[..., : n * bits]
    codes = np.packbits(
        digits.reshape(*packed.shape[:-1], n, bits), axis=-1, bitorder="little"
    )[..., 0]
    return from_codes(codes, scales, record, shape, axis, tensor_amax)
