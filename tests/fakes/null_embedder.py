"""Embedder without a model.

Vectors are word hashes, so texts that share words are similar.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from engines.embed.states import StateScale, normalize_rows, pack_states
from schemas.ids import fingerprint
from schemas.ports.engines import QueryEmbedding, TextEmbedding, TokenSpans

VERSION = 2
_WORD = re.compile(r"\w+")
MAX_TOKENS = 510


class NullEmbedder:
    """Embedder that is deterministic on every machine.

    A text's vector is the normalized sum of its words' vectors; its states are the words' vectors.
    """

    model = "null"

    def __init__(self, dimension: int = 384, state_dimension: int = 0) -> None:
        self.dimension, self.state_dimension = dimension, state_dimension
        self.fingerprint = fingerprint("null", VERSION, dimension, state_dimension)

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        embeddings = []
        for text in texts:
            words = _split_words(text)
            vector = self._compute_vector(words).astype(np.float16)
            embeddings.append(
                TextEmbedding(
                    vector,
                    pack_states(
                        self._compute_states(words),
                        _hash_token_ids(words),
                        StateScale.for_random_rows(self.state_dimension),
                    ),
                    0.0,
                    0.0,
                )
                if self.state_dimension
                else TextEmbedding(vector)
            )
        return embeddings

    async def embed_query(self, text: str) -> QueryEmbedding:
        words = _split_words(text)
        if not self.state_dimension:
            return QueryEmbedding(self._compute_vector(words))
        return QueryEmbedding(
            self._compute_vector(words), self._compute_states(words), _hash_token_ids(words), 0.0
        )

    async def locate_tokens(self, texts: Sequence[str]) -> list[TokenSpans]:
        return [
            np.array(
                [match.span() for match in _find_words(text)] if self.state_dimension else [],
                np.int64,
            ).reshape(-1, 2)
            for text in texts
        ]

    def _compute_vector(self, words: Sequence[str]) -> NDArray[np.float32]:
        return normalize_rows(
            np.stack([_compute_direction(word, self.dimension) for word in words or [""]]).sum(
                axis=0, dtype=np.float32
            )
        )

    def _compute_states(self, words: Sequence[str]) -> NDArray[np.float32]:
        rows = [_compute_direction(word, self.state_dimension) for word in words]
        return np.stack(rows) if rows else np.zeros((0, self.state_dimension), np.float32)


def _find_words(text: str) -> list[re.Match[str]]:
    return list(islice(_WORD.finditer(text), MAX_TOKENS))


def _split_words(text: str) -> list[str]:
    return [match.group().casefold() for match in _find_words(text)]


def _hash_token_ids(words: Sequence[str]) -> NDArray[np.int32]:
    return np.array(
        [int.from_bytes(_hash_word(word)[:4], "little") >> 1 for word in words], np.int32
    )


@lru_cache(maxsize=4096)
def _compute_direction(word: str, dimension: int) -> NDArray[np.float32]:
    seed = int.from_bytes(_hash_word(word)[:8], "little")
    row = normalize_rows(
        np.random.Generator(np.random.PCG64(seed)).uniform(-1, 1, dimension).astype(np.float32)
    )
    row.flags.writeable = False
    return row


def _hash_word(word: str) -> bytes:
    return hashlib.sha256(word.encode()).digest()
