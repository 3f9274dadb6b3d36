"""multilingual-e5-small (Wang et al. 2024, arXiv:2402.05672) in this process: the embedder that needs no server."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engines.embed.background import Background, texts, texts_hash
from engines.embed.e5_file import FILE_SHA256, locate
from engines.embed.e5_session import E5Encoder, Floats
from engines.embed.lanes import Lanes
from engines.embed.states import quantised, unit_rows
from schemas.errors import ConfigurationError
from schemas.ids import fingerprint
from schemas.ports.engines import Embedded, EmbeddedQuery

VERSION = 1
DIMENSION = 384
QUERY, PASSAGE = "query: ", "passage: "
BATCH_TOKENS = 1024
"""Padded tokens of one run at most: half a second of a core, and larger runs are no faster. What arrives meanwhile waits no longer than that."""
ASSETS = files("engines.embed") / "assets"
BASIS = "e5_basis.npy"
BACKGROUNDS = {"questions": QUERY, "passages": PASSAGE}
STATE_DIMENSION = 64
"""For which backgrounds are shipped."""


class E5Embedder:
    """Loads on first use, in about a second; with `state_dimension` other than 64 it takes some more once in a data folder. Passages run on `threads` threads, a short order before a long one that came a little earlier; questions on one of their own."""

    model = "multilingual-e5-small"
    dimension = DIMENSION

    def __init__(self, cache_dir: Path, *, state_dimension: int = STATE_DIMENSION, threads: int = 2) -> None:
        if not 0 <= state_dimension <= DIMENSION:
            raise ConfigurationError(f"state_dimension is {state_dimension}; the model's states have 1 to {DIMENSION} dimensions, and 0 keeps none.")
        locate()
        self.state_dimension, self._threads = state_dimension, threads
        self.fingerprint = fingerprint("e5", VERSION, FILE_SHA256, "fp32", basis_hash(), texts_hash("questions"), state_dimension)
        self._cache_dir, self._loading = cache_dir, threading.Lock()
        self._model: _Model | None = None
        self._passages, self._questions = Lanes(threads, "e5"), Lanes(1, "e5-query")
        self._worked = 0

    async def embed(self, texts: Sequence[str]) -> list[Embedded]:
        if not texts:
            return []
        ids = await self._passages.run(lambda: [self._loaded().encode(PASSAGE, text) for text in texts], self._worked)
        tokens = sum(map(len, ids))
        rank = self._worked + tokens
        batches = list(_batches([len(item) for item in ids], min(BATCH_TOKENS, -(-tokens // self._threads))))
        done = await asyncio.gather(*(self._batch([ids[n] for n in batch], rank) for batch in batches))
        answers = {place: answer for batch, run in zip(batches, done, strict=True) for place, answer in zip(batch, run, strict=True)}
        return [answers[place] for place in range(len(texts))]

    async def _batch(self, batch: list[list[int]], rank: int) -> list[Embedded]:
        answers = await self._passages.run(lambda: self._loaded().passages(batch), rank)
        self._worked += sum(map(len, batch))
        return answers

    async def embed_query(self, text: str) -> EmbeddedQuery:
        return await self._questions.run(lambda: self._loaded().question(text))

    async def warm(self) -> None:
        """Load the model now, so that the first question need not wait for it."""
        await self._questions.run(self._loaded)

    def close(self) -> None:
        self._passages.close()
        self._questions.close()

    def _loaded(self) -> _Model:
        with self._loading:
            if self._model is None:
                self._model = _Model(self._cache_dir, self.state_dimension)
            return self._model


class E5Reader:
    """Texts to vectors and states, without any background: what blocks."""

    def __init__(self, cache_dir: Path, state_dimension: int) -> None:
        self._encoder = E5Encoder(cache_dir)
        self._basis = basis()[:, :state_dimension]
        self._marks = {prefix: 1 + len(self._encoder.tokenizer.pieces(prefix.rstrip())) for prefix in (QUERY, PASSAGE)}

    def encode(self, prefix: str, text: str) -> list[int]:
        return self._encoder.tokenizer.encode(prefix + text)

    def read(self, prefix: str, batch: Sequence[Sequence[int]]) -> list[_Read]:
        return [self._vectors(prefix, hidden) for hidden in self._encoder.states(batch)]

    def inner(self, prefix: str, ids: Sequence[int]) -> NDArray[np.int32]:
        return np.asarray(ids[self._marks[prefix] : -1], np.int32)

    def background(self, name: str) -> Background:
        prefix = BACKGROUNDS[name]
        ids = [self.encode(prefix, line) for line in texts(name)]
        read = {n: item for batch in _batches([len(item) for item in ids], BATCH_TOKENS) for n, item in self._numbered(prefix, ids, batch)}
        return Background.of([read[n].vector for n in range(len(ids))], [read[n].states for n in range(len(ids))])

    def _numbered(self, prefix: str, ids: Sequence[Sequence[int]], batch: Sequence[int]) -> Iterator[tuple[int, _Read]]:
        return zip(batch, self.read(prefix, [ids[n] for n in batch]), strict=True)

    def _vectors(self, prefix: str, hidden: Floats) -> _Read:
        return _Read(unit_rows(hidden.mean(axis=0)), unit_rows(hidden[self._marks[prefix] : -1] @ self._basis))


class _Model:
    """Everything loaded: what blocks."""

    def __init__(self, cache_dir: Path, state_dimension: int) -> None:
        self._reader = E5Reader(cache_dir, state_dimension)
        self._questions, self._passages = (self._background(name, cache_dir, state_dimension) for name in ("questions", "passages"))

    def encode(self, prefix: str, text: str) -> list[int]:
        return self._reader.encode(prefix, text)

    def passages(self, batch: Sequence[Sequence[int]]) -> list[Embedded]:
        return [self._passage(item, ids) for item, ids in zip(self._reader.read(PASSAGE, batch), batch, strict=True)]

    def question(self, text: str) -> EmbeddedQuery:
        ids = self.encode(QUERY, text)
        (item,) = self._reader.read(QUERY, [ids])
        if not item.states.shape[1]:
            return EmbeddedQuery(item.vector)
        return EmbeddedQuery(item.vector, item.states, self._reader.inner(QUERY, ids), self._passages.maxsim_as_passages(item.states))

    def _passage(self, item: _Read, ids: Sequence[int]) -> Embedded:
        vector, dense = item.vector.astype(np.float16), self._questions.dense(item.vector)
        if not item.states.shape[1]:
            return Embedded(vector, background_dense=dense)
        maxsim = self._questions.maxsim_as_questions(item.states)
        return Embedded(vector, quantised(item.states), self._reader.inner(PASSAGE, ids), dense, maxsim)

    def _background(self, name: str, cache_dir: Path, state_dimension: int) -> Background:
        """As shipped, or read once in a data folder; then loaded."""
        file = background_file(name, state_dimension)
        with as_file(ASSETS / file) as shipped:
            if shipped.exists():
                return Background.load(shipped)
        if not (cache_dir / file).exists():
            self._reader.background(name).save(cache_dir / file)
        return Background.load(cache_dir / file)


@dataclass(frozen=True, slots=True)
class _Read:
    """A text's unit vector, and its unit states without prefix and sentence marks."""

    vector: Floats
    states: Floats


def _batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Places of texts, shortest first, so many at a time as fit the budget when padded; one that is longer than the budget goes alone."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[place] > budget:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


@cache
def basis() -> Floats:
    """[384, 384], columns in the order of the variance they keep."""
    with (ASSETS / BASIS).open("rb") as file:
        return np.asarray(np.load(file), np.float32)


def basis_hash() -> str:
    return hashlib.sha256((ASSETS / BASIS).read_bytes()).hexdigest()[:16]


def background_file(name: str, state_dimension: int) -> str:
    return f"e5-background-{name}-{fingerprint(VERSION, FILE_SHA256, basis_hash(), texts_hash(name), state_dimension)}.npz"
