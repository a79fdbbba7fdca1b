"""Quantize matrices to Q4_K, which the ``gguf`` package reads but does not write.

A block holds 256 values as 4-bit numbers, in 8 runs of 32. Each value is

    d * scale * number - dmin * least

where each run has a 6-bit scale and a 6-bit least, and the block has the half floats d and dmin:

    bytes 0-1: d, 2-3: dmin, 4-15: the 16 six-bit numbers, 16-143: the 4-bit numbers

Runs are stored in pairs: the low halves of 32 bytes are one run, the high halves the next. Scales
come from each run's range. llama.cpp searches for better ones; tests don't need that precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 256
RUN = 32
BLOCK_BYTES = 144
BLOCKS_AT_ONCE = 1 << 14


def quantize_q4_k(weights: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Quantize a matrix of ``[rows, columns]``; return bytes, ``[rows, columns / 256 * 144]``."""
    rows, columns = weights.shape
    if columns % BLOCK:
        raise ValueError(f"weights: expected a multiple of {BLOCK} columns, got {columns}")
    blocks = weights.reshape(-1, BLOCK)
    out = np.empty((len(blocks), BLOCK_BYTES), dtype=np.uint8)
    for begin in range(0, len(blocks), BLOCKS_AT_ONCE):
        part = slice(begin, begin + BLOCKS_AT_ONCE)
        out[part] = _quantize_blocks(blocks[part])
    return out.reshape(rows, -1)


def _quantize_blocks(blocks: NDArray[np.float32]) -> NDArray[np.uint8]:
    runs = blocks.reshape(-1, BLOCK // RUN, RUN)
    least = np.minimum(runs.min(axis=2), 0.0)  # [blocks, 8]; the format has no least above 0
    scale = (runs.max(axis=2) - least) / 15.0
    d, scale_bits = _six_bits(scale)
    dmin, least_bits = _six_bits(-least)

    step = d[:, None] * scale_bits
    offset = dmin[:, None] * least_bits
    with np.errstate(divide="ignore", invalid="ignore"):
        numbers = np.rint((runs + offset[:, :, None]) / step[:, :, None])
    numbers = np.nan_to_num(np.clip(numbers, 0, 15)).astype(np.uint8)

    out = np.empty((len(blocks), BLOCK_BYTES), dtype=np.uint8)
    halves = np.stack([d, dmin], axis=1).astype(np.float16)
    out[:, :4] = halves.view(np.uint8)
    out[:, 4:16] = _pack_six_bits(scale_bits, least_bits)
    out[:, 16:] = (numbers[:, 0::2] | (numbers[:, 1::2] << 4)).reshape(len(blocks), -1)
    return out


def _six_bits(values: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Return a half-float unit for each block, and the values as 6-bit multiples of the unit."""
    unit = (values.max(axis=1) / 63.0).astype(np.float16).astype(np.float32)
    safe = np.where(unit > 0, unit, 1.0)
    return unit, np.clip(np.rint(values / safe[:, None]), 0, 63).astype(np.uint8)


def _pack_six_bits(scales: NDArray[np.uint8], leasts: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Pack 8 scales and 8 leasts into 12 bytes.

    Bytes 0 to 3 hold the first four scales, bytes 4 to 7 the first four leasts, and bytes 8 to 11
    the low four bits of the last four scales and leasts. The upper two bits of the last four are in
    the free bits of bytes 0 to 7.
    """
    packed = np.empty((len(scales), 12), dtype=np.uint8)
    packed[:, 0:4] = scales[:, :4] | ((scales[:, 4:] >> 4) << 6)
    packed[:, 4:8] = leasts[:, :4] | ((leasts[:, 4:] >> 4) << 6)
    packed[:, 8:12] = (scales[:, 4:] & 0xF) | ((leasts[:, 4:] & 0xF) << 4)
    return packed
