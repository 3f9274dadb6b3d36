"""Binary encoding of a text's token states.

A little-endian header (rows, columns), the token ids (int32), then the rows (int8, unit vectors ×
127).
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

_HEADER = struct.Struct("<II")

Floats = NDArray[np.float32]
TokenIds = NDArray[np.int32]


def pack_states(rows: Floats, token_ids: TokenIds) -> bytes:
    """Pack unit rows, one byte a number."""
    if len(token_ids) != len(rows):
        raise ValueError(f"{len(token_ids)} token ids for {len(rows)} states")
    return (
        _HEADER.pack(*rows.shape)
        + token_ids.astype("<i4").tobytes()
        + np.rint(rows * 127).astype(np.int8).tobytes()
    )


def unpack_states(data: bytes) -> tuple[Floats, TokenIds]:
    """Return unit rows and token ids, [rows, columns] and [rows].

    Raises ValueError if the length of the data does not match its header.
    """
    rows, columns = _HEADER.unpack_from(data) if len(data) >= _HEADER.size else (0, 0)
    start = _HEADER.size + 4 * rows
    if len(data) != start + rows * columns or len(data) < _HEADER.size:
        raise ValueError(f"{len(data)} bytes cannot hold {rows} states of {columns} numbers")
    ids = np.frombuffer(data, "<i4", rows, _HEADER.size).astype(np.int32, copy=False)
    packed = np.frombuffer(data, np.int8, rows * columns, start).reshape(rows, columns)
    return np.asarray(packed / np.float32(127), np.float32), ids


def normalize_rows(rows: Floats) -> Floats:
    """Divide each row by its length; rows of zeros stay zero."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12), np.float32)
