"""Local embedder: multilingual-e5-small (Wang et al. 2024, arXiv:2402.05672) in this process."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engines.disk import write_atomically
from engines.embed.e5_file import FILE_SHA256, locate_weights
from engines.embed.e5_session import E5Encoder, PriorityThreadPool
from engines.embed.states import Floats, StateScale, normalize_rows, pack_states, take_leading
from schemas.errors import ConfigurationError
from schemas.ids import fingerprint
from schemas.ports.engines import QueryEmbedding, TextEmbedding, TokenSpans
from schemas.ports.metering import count_local_call

VERSION = 3
DIMENSION = 384
# The model was trained with these prefixes.
QUERY, PASSAGE = "query: ", "passage: "
BATCH_TOKENS = 1024
"""Most padded tokens per batch: half a second of a core. Larger batches are no faster, and other
work waits longer."""
ASSETS = files("engines.embed") / "assets"
BASIS_FILE = "e5_basis.npy"
BACKGROUND_PREFIXES = {"questions": QUERY, "passages": PASSAGE}
LANGUAGES_FILE = "languages.tsv"
STATE_DIMENSION = 256
"""Dimension for which backgrounds and means are shipped."""


class E5Embedder:
    """Embedder that loads the model on first use, in about a second.

    The first load with a `state_dimension` other than 256 also computes the backgrounds into
    `cache_dir`. Passages run on `threads` threads, questions on a thread of their own.
    """

    model = "multilingual-e5-small"
    dimension = DIMENSION

    def __init__(
        self, cache_dir: Path, *, state_dimension: int = STATE_DIMENSION, threads: int = 2
    ) -> None:
        if not 0 <= state_dimension <= DIMENSION:
            raise ConfigurationError(
                f"Invalid state_dimension {state_dimension}.",
                remedy=f"Use 1 to {DIMENSION}, or 0 to store no token states.",
            )
        # Fails at start-up rather than with the first document.
        locate_weights()
        self.state_dimension, self._threads = state_dimension, threads
        self.fingerprint = fingerprint(
            "e5",
            VERSION,
            FILE_SHA256,
            "fp32",
            hash_basis(),
            hash_texts("questions"),
            state_dimension,
        )
        self._cache_dir, self._load_lock = cache_dir, threading.Lock()
        self._model: _E5Model | None = None
        self._passage_pool = PriorityThreadPool(threads, "e5")
        self._query_pool = PriorityThreadPool(1, "e5-query")
        self._processed_tokens = 0

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        if not texts:
            return []
        count_local_call("embed", self.model)
        ids = await self._passage_pool.run(
            lambda: [self._load_model().encoder.tokenize(PASSAGE, text) for text in texts],
            self._processed_tokens,
        )
        tokens = sum(map(len, ids))
        # A virtual finish time: short calls overtake long ones that started a little earlier.
        priority = self._processed_tokens + tokens
        # Divided by the threads, so that all of them share a short call.
        batches = list(
            _plan_batches(list(map(len, ids)), min(BATCH_TOKENS, -(-tokens // self._threads)))
        )
        batch_results = await asyncio.gather(
            *(self._embed_batch([ids[n] for n in batch], priority) for batch in batches)
        )
        results_by_index = {
            index: result
            for batch, batch_result in zip(batches, batch_results, strict=True)
            for index, result in zip(batch, batch_result, strict=True)
        }
        return [results_by_index[index] for index in range(len(texts))]

    async def _embed_batch(self, batch: list[list[int]], priority: int) -> list[TextEmbedding]:
        results = await self._passage_pool.run(
            lambda: self._load_model().embed_passages(batch), priority
        )
        self._processed_tokens += sum(map(len, batch))
        return results

    async def embed_query(self, text: str) -> QueryEmbedding:
        count_local_call("embed", self.model)
        return await self._query_pool.run(lambda: self._load_model().embed_question(text))

    async def locate_tokens(self, texts: Sequence[str]) -> list[TokenSpans]:
        return await self._query_pool.run(
            lambda: (
                [self._load_model().encoder.locate_tokens(PASSAGE, text) for text in texts]
                if self.state_dimension
                else [np.zeros((0, 2), np.int64) for _ in texts]
            )
        )

    async def warm(self) -> None:
        """Load the model now instead of with the first question."""
        await self._query_pool.run(self._load_model)

    def close(self) -> None:
        self._passage_pool.close()
        self._query_pool.close()

    def _load_model(self) -> _E5Model:
        # The pools' threads may ask for the model at the same time.
        with self._load_lock:
            if self._model is None:
                self._model = _E5Model(self._cache_dir, self.state_dimension)
            return self._model


class E5TextEncoder:
    """Encodes texts to vectors and token states, without backgrounds. Blocks its thread."""

    def __init__(self, cache_dir: Path, state_dimension: int) -> None:
        self._encoder = E5Encoder(cache_dir)
        self._basis = load_basis()[:, :state_dimension]
        # 1 for the special token at the start.
        self._prefix_lengths = {
            prefix: 1 + len(self._encoder.tokenizer.tokenize(prefix.rstrip()))
            for prefix in (QUERY, PASSAGE)
        }

    def tokenize(self, prefix: str, text: str) -> list[int]:
        return self._encoder.tokenizer.encode(prefix + text)

    def encode_batch(self, prefix: str, batch: Sequence[Sequence[int]]) -> list[_EncodedText]:
        return [
            _EncodedText(
                normalize_rows(hidden.mean(axis=0)),
                # Without prefix and special tokens, which every text has.
                normalize_rows(hidden[self._prefix_lengths[prefix] : -1] @ self._basis),
            )
            for hidden in self._encoder.compute_states(batch)
        ]

    def strip_special_tokens(self, prefix: str, ids: Sequence[int]) -> NDArray[np.int32]:
        return np.asarray(ids[self._prefix_lengths[prefix] : -1], np.int32)

    def locate_tokens(self, prefix: str, text: str) -> TokenSpans:
        spans = self._encoder.tokenizer.locate_tokens(prefix + text)
        # States lack the prefix too; `encode` adds the special token at the start, which has no
        # span.
        return spans[self._prefix_lengths[prefix] - 1 :] - len(prefix)

    def compute_background(self, name: str) -> Background:
        encoded_texts = self._encode(BACKGROUND_PREFIXES[name], load_texts(name))
        states = [text.states for text in encoded_texts]
        # The passages correct the score that decides refusal, the questions the order.
        if name == "passages":
            states = [take_leading(rows) for rows in states]
        return Background.from_vectors([text.vector for text in encoded_texts], states)

    def compute_means(self) -> StateMeans:
        languages, questions = zip(*load_language_questions(), strict=True)
        encoded_texts = self._encode(QUERY, questions)
        states: dict[str, list[Floats]] = {}
        for language, text in zip(languages, encoded_texts, strict=True):
            states.setdefault(language, []).append(take_leading(text.states))
        passages = self._encode(PASSAGE, load_texts("passages"))
        return StateMeans(
            {language: np.concatenate(rows).mean(axis=0) for language, rows in states.items()},
            StateScale.from_rows(np.concatenate([text.states for text in passages])),
        )

    def _encode(self, prefix: str, texts: Sequence[str]) -> list[_EncodedText]:
        ids = [self.tokenize(prefix, text) for text in texts]
        encoded_by_index: dict[int, _EncodedText] = {}
        for batch in _plan_batches(list(map(len, ids)), BATCH_TOKENS):
            encoded_by_index.update(
                zip(batch, self.encode_batch(prefix, [ids[n] for n in batch]), strict=True)
            )
        return [encoded_by_index[n] for n in range(len(ids))]


class _E5Model:
    """The loaded encoder with its backgrounds. Blocks its thread."""

    def __init__(self, cache_dir: Path, state_dimension: int) -> None:
        self.encoder = E5TextEncoder(cache_dir, state_dimension)
        self._question_background, self._passage_background = (
            self._load_background(name, cache_dir, state_dimension)
            for name in ("questions", "passages")
        )
        self._means = self._load_means(cache_dir, state_dimension)

    def embed_passages(self, batch: Sequence[Sequence[int]]) -> list[TextEmbedding]:
        return [
            self._embed_passage(encoded, ids)
            for encoded, ids in zip(self.encoder.encode_batch(PASSAGE, batch), batch, strict=True)
        ]

    def embed_question(self, text: str) -> QueryEmbedding:
        ids = self.encoder.tokenize(QUERY, text)
        (encoded,) = self.encoder.encode_batch(QUERY, [ids])
        if not encoded.states.shape[1]:
            return QueryEmbedding(encoded.vector)
        return QueryEmbedding(
            encoded.vector,
            encoded.states,
            self.encoder.strip_special_tokens(QUERY, ids),
            self._passage_background.mean_maxsim_for_question(take_leading(encoded.states)),
            language_means=self._means.languages,
        )

    def _embed_passage(self, encoded: _EncodedText, ids: Sequence[int]) -> TextEmbedding:
        vector = encoded.vector.astype(np.float16)
        dense = self._question_background.mean_cosine(encoded.vector)
        if not encoded.states.shape[1]:
            return TextEmbedding(vector, background_dense=dense)
        return TextEmbedding(
            vector,
            pack_states(
                encoded.states,
                self.encoder.strip_special_tokens(PASSAGE, ids),
                self._means.passages,
            ),
            dense,
            self._question_background.mean_maxsim_for_passage(encoded.states),
        )

    def _load_background(self, name: str, cache_dir: Path, state_dimension: int) -> Background:
        file = get_background_file_name(name, state_dimension)
        with _locate_shipped_or_computed(
            file, cache_dir, lambda path: self.encoder.compute_background(name).save(path)
        ) as path:
            return Background.load(path)

    def _load_means(self, cache_dir: Path, state_dimension: int) -> StateMeans:
        with _locate_shipped_or_computed(
            get_means_file_name(state_dimension),
            cache_dir,
            lambda path: self.encoder.compute_means().save(path),
        ) as path:
            return StateMeans.load(path)


@contextmanager
def _locate_shipped_or_computed(
    file: str, cache_dir: Path, compute: Callable[[Path], None]
) -> Iterator[Path]:
    """Give the shipped file, or the one in `cache_dir`, which is computed if missing."""
    with as_file(ASSETS / file) as shipped_path:
        if shipped_path.exists():
            yield shipped_path
            return
    if not (cache_dir / file).exists():
        compute(cache_dir / file)
    yield cache_dir / file


@dataclass(frozen=True, slots=True)
class Background:
    """Mean similarity of a question to general passages, or of a passage to general questions.

    The texts are fixed and shipped with the engine, so a score minus its background is comparable
    between corpora. Has their vectors [texts, dimension] and token states [tokens of all texts,
    dimension]; `starts` has each text's first row.
    """

    vectors: Floats
    states: Floats
    starts: NDArray[np.int64]

    @classmethod
    def from_vectors(cls, vectors: list[Floats], states: list[Floats]) -> Background:
        starts = np.cumsum([0, *map(len, states[:-1])])
        return cls(np.stack(vectors), np.concatenate(states), starts)

    @classmethod
    def load(cls, path: Path) -> Background:
        with np.load(path) as stored:
            return cls(stored["vectors"], stored["states"], stored["starts"])

    def save(self, path: Path) -> None:
        _save_arrays(path, vectors=self.vectors, states=self.states, starts=self.starts)

    def mean_cosine(self, vector: Floats) -> float:
        return float((self.vectors @ vector).mean())

    def mean_maxsim_for_passage(self, passage: Floats) -> float | None:
        """Return the mean MaxSim of the texts against a passage's states, None without tokens."""
        if not len(passage):
            return None
        best = (self.states @ passage.T).max(axis=1)
        lengths = np.diff(np.append(self.starts, len(best)))
        return float((np.add.reduceat(best, self.starts) / lengths).mean())

    def mean_maxsim_for_question(self, question: Floats) -> float | None:
        """Return the mean MaxSim of a question's states against the texts, None without tokens."""
        if not len(question):
            return None
        return float(np.maximum.reduceat(question @ self.states.T, self.starts, axis=1).mean())


@dataclass(frozen=True, slots=True)
class StateMeans:
    """Means of token states: `languages` of the leading columns, of the same questions in each
    language; `passages` of all columns, of the background passages.
    """

    languages: Mapping[str, Floats]
    passages: StateScale

    @classmethod
    def load(cls, path: Path) -> StateMeans:
        with np.load(path) as stored:
            return cls(
                dict(zip(stored["languages"].tolist(), stored["language_means"], strict=True)),
                StateScale(stored["means"], stored["deviations"]),
            )

    def save(self, path: Path) -> None:
        _save_arrays(
            path,
            languages=np.array(list(self.languages)),
            language_means=np.stack(list(self.languages.values())),
            means=self.passages.means,
            deviations=self.passages.deviations,
        )


def _save_arrays(path: Path, **arrays: Any) -> None:
    write_atomically(path, lambda temporary_path: np.savez(temporary_path, **arrays))


@dataclass(frozen=True, slots=True)
class _EncodedText:
    """A text's unit vector, and its unit states without prefix and special tokens."""

    vector: Floats
    states: Floats


def _plan_batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield batches of text indexes, shortest texts first, within `budget` padded tokens.

    A text that exceeds the budget gets a batch of its own.
    """
    batch: list[int] = []
    # By length, because padding costs as much as text.
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[index] > budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


@cache
def load_texts(name: str) -> list[str]:
    """Load the sixty `questions` or `passages`, half English, half Portuguese."""
    return (ASSETS / f"{name}.txt").read_text(encoding="utf-8").splitlines()


@cache
def load_language_questions() -> list[tuple[str, str]]:
    """Load the same twenty questions in each language, as language and question."""
    lines = (ASSETS / LANGUAGES_FILE).read_text(encoding="utf-8").splitlines()
    return [(language, question) for language, question in (line.split("\t") for line in lines)]


def hash_texts(name: str) -> str:
    return _hash_lines(load_texts(name))


def _hash_lines(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@cache
def load_basis() -> Floats:
    """Load the basis [384, 384]. Blocks of 64 columns are in descending order of variance, and
    rotated at random within.
    """
    with (ASSETS / BASIS_FILE).open("rb") as file:
        return np.asarray(np.load(file), np.float32)


def hash_basis() -> str:
    return hashlib.sha256((ASSETS / BASIS_FILE).read_bytes()).hexdigest()[:16]


def get_background_file_name(name: str, state_dimension: int) -> str:
    version = fingerprint(VERSION, FILE_SHA256, hash_basis(), hash_texts(name), state_dimension)
    return f"e5-background-{name}-{version}.npz"


def get_means_file_name(state_dimension: int) -> str:
    texts = (_hash_lines(map("\t".join, load_language_questions())), hash_texts("passages"))
    version = fingerprint(VERSION, FILE_SHA256, hash_basis(), *texts, state_dimension)
    return f"e5-means-{version}.npz"
