"""Binary encoding of a text's token states.

Unit rows are kept in about 2.5 bits a number: the leading 64 columns, which refusal and evidence
compare, in four bits, the others in two. Each number is the nearest of the levels that lose least
for a normal distribution (Max 1960) around its column's mean; columns of one block of 64 share a
deviation. Rotating the blocks at random beforehand makes their columns alike (as in RaBitQ, Gao &
Long 2024, arXiv:2405.12497).

A little-endian header (rows, columns), the deviations of the blocks (float32), the means of the
columns (int8, × 127), the token ids (int32), then the codes of the leading columns and those of the
others, each row filled up to whole bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

_HEADER = struct.Struct("<II")
LEADING_DIMENSION = BLOCK = 64
LEADING_BITS, OTHER_BITS = 4, 2
# Positive levels of a normal distribution of deviation 1, by bits (Max 1960, table I).
_LEVELS = {2: (0.4528, 1.510), 4: (0.1284, 0.3881, 0.6568, 0.9424, 1.256, 1.618, 2.069, 2.733)}

Floats = NDArray[np.float32]
TokenIds = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class StateScale:
    """Means of the columns [columns], and deviations of blocks of 64 columns."""

    means: Floats
    deviations: Floats

    @classmethod
    def from_rows(cls, rows: Floats) -> StateScale:
        """Measure unit rows."""
        means = _round_means(rows.mean(axis=0))
        starts = range(0, rows.shape[1], BLOCK)
        deviations = [np.sqrt(np.mean((rows - means)[:, n : n + BLOCK] ** 2)) for n in starts]
        return cls(means, np.array(deviations, np.float32))

    @classmethod
    def for_random_rows(cls, columns: int) -> StateScale:
        """Return the scale of unit rows in all directions."""
        n_blocks = -(-columns // BLOCK)
        return cls(
            np.zeros(columns, np.float32),
            np.full(n_blocks, 1 / np.sqrt(max(1, columns)), np.float32),
        )


def pack_states(rows: Floats, token_ids: TokenIds, scale: StateScale) -> bytes:
    """Pack unit rows."""
    if len(token_ids) != len(rows):
        raise ValueError(f"{len(token_ids)} token ids for {len(rows)} states")
    columns = rows.shape[1]
    deviations = np.repeat(scale.deviations, BLOCK)[:columns]
    centered = rows - _round_means(scale.means)
    scaled: Floats = np.divide(centered, np.maximum(deviations, 1e-12), dtype=np.float32)
    return b"".join(
        (
            _HEADER.pack(*rows.shape),
            scale.deviations.astype("<f4").tobytes(),
            np.rint(scale.means * 127).astype(np.int8).tobytes(),
            token_ids.astype("<i4").tobytes(),
            _pack(scaled[:, :LEADING_DIMENSION], LEADING_BITS),
            _pack(scaled[:, LEADING_DIMENSION:], OTHER_BITS),
        )
    )


def unpack_states(data: bytes) -> tuple[Floats, TokenIds]:
    """Return unit rows and token ids, [rows, columns] and [rows].

    Raises ValueError for data that `pack_states` cannot have written.
    """
    rows, columns = _HEADER.unpack_from(data) if len(data) >= _HEADER.size else (0, 0)
    n_blocks, leading = -(-columns // BLOCK), min(columns, LEADING_DIMENSION)
    row_bytes = [-(-leading * LEADING_BITS // 8), -(-(columns - leading) * OTHER_BITS // 8)]
    lengths = [4 * n_blocks, columns, 4 * rows, *(rows * count for count in row_bytes)]
    if len(data) != _HEADER.size + sum(lengths) or len(data) < _HEADER.size:
        raise ValueError(f"{len(data)} bytes cannot hold {rows} states of {columns} numbers")
    starts = np.cumsum([_HEADER.size, *lengths]).tolist()
    deviations = np.frombuffer(data, "<f4", n_blocks, starts[0])
    # Those of unit rows are at most 1; others, and NaN, would spoil the scores of other passages.
    if not ((deviations >= 0) & (deviations <= 1)).all():
        raise ValueError("the deviations of the states are not between 0 and 1")
    means = np.frombuffer(data, np.int8, columns, starts[1]) / np.float32(127)
    ids = np.frombuffer(data, "<i4", rows, starts[2]).astype(np.int32, copy=False)
    codes = [
        np.frombuffer(data, np.uint8, rows * count, start).reshape(rows, count)
        for count, start in zip(row_bytes, starts[3:], strict=False)
    ]
    found = np.empty((rows, columns), np.float32)
    found[:, :leading] = _unpack(codes[0], LEADING_BITS)[:, :leading]
    found[:, leading:] = _unpack(codes[1], OTHER_BITS)[:, : columns - leading]
    found *= np.repeat(deviations, BLOCK)[:columns]
    found += means
    return normalize_rows(found), ids


def normalize_rows(rows: Floats) -> Floats:
    """Divide each row by its length; rows of zeros stay zero."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12), np.float32)


def take_leading(rows: Floats) -> Floats:
    """Return unit rows of the leading columns only, which refusal and evidence compare."""
    if rows.shape[1] <= LEADING_DIMENSION:
        return rows
    return normalize_rows(rows[:, :LEADING_DIMENSION])


def _round_means(means: Floats) -> Floats:
    # As they are stored.
    return np.asarray(np.rint(means * 127) / 127, np.float32)


@cache
def _get_levels(bits: int) -> Floats:
    positive = np.array(_LEVELS[bits], np.float32)
    return np.concatenate([-positive[::-1], positive])


@cache
def _list_byte_levels(bits: int) -> Floats:
    """Return the numbers that each byte stands for, [256, 8 / bits]."""
    shifts = np.arange(0, 8, bits)
    return np.asarray(_get_levels(bits)[(np.arange(256)[:, None] >> shifts) & (2**bits - 1)])


def _pack(scaled: Floats, bits: int) -> bytes:
    levels, per_byte = _get_levels(bits), 8 // bits
    codes = np.searchsorted((levels[1:] + levels[:-1]) / 2, scaled).astype(np.uint8)
    rows, columns = codes.shape
    padded = np.pad(codes, ((0, 0), (0, -columns % per_byte)))
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    grouped = padded.reshape(rows, padded.shape[1] // per_byte, per_byte) << shifts
    return bytes(np.bitwise_or.reduce(grouped, axis=2).tobytes())


def _unpack(codes: NDArray[np.uint8], bits: int) -> Floats:
    rows, row_bytes = codes.shape
    # Ten times as fast as an index.
    numbers = np.take(_list_byte_levels(bits), codes, axis=0)
    return numbers.reshape(rows, row_bytes * (8 // bits))
