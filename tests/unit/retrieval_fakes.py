"""Engines for tests of retrieval: a word is a direction, so texts that share words are close."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from retrieval.question.words import extract_content_words, guess_language
from schemas.errors import EngineUnavailable, NotFound
from schemas.ports.engines import (
    DEFAULT_CHAT_OPTIONS,
    ChatOptions,
    ChatReply,
    ChatUsage,
    OnDelta,
    QueryEmbedding,
    RerankPassage,
    RerankScore,
    TextEmbedding,
    TokenSpans,
    TokenWeighting,
)
from schemas.ports.metering import PlannedCall, meter_call
from schemas.values import BlobRef

DIMENSION = 32


def word_direction(word: str) -> NDArray[np.float32]:
    seed = int.from_bytes(hashlib.sha256(word[:4].encode()).digest()[:4], "big")
    row = np.random.default_rng(seed).standard_normal(DIMENSION).astype(np.float32)
    return row / np.linalg.norm(row)


def token_states_of(text: str) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    words = extract_content_words(text) or ["nothing"]
    ids = [int.from_bytes(hashlib.sha256(word[:4].encode()).digest()[:2], "big") for word in words]
    return np.stack([word_direction(word) for word in words]), np.array(ids, np.int32)


def locate_words(text: str) -> NDArray[np.int64]:
    return np.array(
        [
            match.span()
            for match in re.finditer(r"\w+", text)
            if extract_content_words(match.group())
        ],
        np.int64,
    ).reshape(-1, 2)


def embed_text(text: str) -> NDArray[np.float32]:
    mean = token_states_of(text)[0].mean(axis=0)
    return np.asarray(mean / np.linalg.norm(mean), np.float32)


def pack_states(text: str) -> bytes:
    rows, ids = token_states_of(text)
    return len(ids).to_bytes(4, "big") + ids.tobytes() + rows.astype(np.float32).tobytes()


def unpack_states(data: bytes) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    count = int.from_bytes(data[:4], "big")
    ids = np.frombuffer(data, np.int32, count, 4)
    return np.frombuffer(data, np.float32, offset=4 + 4 * count).reshape(count, DIMENSION), ids


@dataclass
class WordEmbedder:
    background: float | None = 0.0
    unavailable: bool = False
    fingerprint: str = "words"
    model: str = "words"
    dimension: int = DIMENSION
    state_dimension: int = DIMENSION
    is_locating: bool = True
    embedded_texts: list[str] = field(default_factory=list)
    embedded_queries: list[str] = field(default_factory=list)

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        self._check_available()
        self.embedded_texts.extend(texts)
        return [
            TextEmbedding(embed_text(text).astype(np.float16), *unpack_states(pack_states(text)))
            for text in texts
        ]

    async def embed_query(self, text: str) -> QueryEmbedding:
        self._check_available()
        self.embedded_queries.append(text)
        rows, ids = token_states_of(text)
        return QueryEmbedding(embed_text(text), rows, ids, self.background)

    async def locate_tokens(self, texts: Sequence[str]) -> list[TokenSpans]:
        self._check_available()
        return [locate_words(text if self.is_locating else "") for text in texts]

    def _check_available(self) -> None:
        if self.unavailable:
            raise EngineUnavailable("the embedder does not answer")


@dataclass
class WordReranker:
    """Return the mean over the question's words of the best cosine among the passage's, weighed
    by the weights of the question's tokens.
    """

    role: Literal["added", "replaces"] = "added"
    threshold: float = 0.5
    name: str = "words"
    fingerprint: str = "words"
    unavailable: bool = False
    passages: list[RerankPassage] = field(default_factory=list)

    def count_requests(self, passages_count: int) -> int:
        return 0

    async def rerank(
        self,
        question: str,
        query: QueryEmbedding | None,
        passages: Sequence[RerankPassage],
        weighting: TokenWeighting | None = None,
    ) -> list[RerankScore]:
        if self.unavailable:
            raise EngineUnavailable("the reranker does not answer")
        self.passages = list(passages)
        question_states = (
            token_states_of(question)[0] if query is None or query.states is None else query.states
        )

        def score(passage: RerankPassage, weights: NDArray[np.float32] | None) -> float:
            return max(
                (
                    float(np.average((question_states @ states.T).max(axis=1), weights=weights))
                    for states in self._token_states(passage)
                ),
                default=0.0,
            )

        scores = [RerankScore(value, value) for value in (score(item, None) for item in passages)]
        if weighting is None:
            return scores
        weights, share = weighting.weights, weighting.share
        return [
            RerankScore(plain, share * score(item, weights) + (1 - share) * plain)
            for item, (plain, _) in zip(passages, scores, strict=True)
        ]

    def _token_states(self, passage: RerankPassage) -> list[NDArray[np.float32]]:
        if self.role == "replaces":
            return [token_states_of(passage.text)[0]]
        return list(passage.states)


def write_reply(*sentences: tuple[str, list[int]], **fields: Any) -> dict[str, Any]:
    """Build the reply of a chat model that answers with these sentences and their citations."""
    parts = [{"text": text, "citations": numbers} for text, numbers in sentences]
    reply = {"sufficient": bool(parts), "sentences": parts, "assumptions": [], "limitations": []}
    return reply | fields


@dataclass
class ScriptedChat:
    """Returns or raises `answer`, or returns its items in turn; records the requests.

    Meters its calls as engines do; a call that raises was not served.
    """

    answer: Mapping[str, Any] | Exception | list[Mapping[str, Any]]
    model: str = "scripted"
    prompts: list[tuple[str, str]] = field(default_factory=list)
    options: list[ChatOptions] = field(default_factory=list)
    bounds: tuple[int, int] = (1000, 500)

    async def complete(
        self,
        system: str,
        user: str,
        schema: Mapping[str, Any],
        *,
        name: str,
        on_delta: OnDelta | None = None,
        options: ChatOptions = DEFAULT_CHAT_OPTIONS,
    ) -> ChatReply:
        call = PlannedCall(name, self.model, *self.bounds)
        with meter_call(call) as metered:
            self.prompts.append((system, user))
            self.options.append(options)
            answer = self.answer.pop(0) if isinstance(self.answer, list) else self.answer
            metered.is_served = not isinstance(answer, Exception)
            metered.usage = ChatUsage(100, 20)
        if isinstance(answer, Exception):
            raise answer
        for letter in json.dumps(answer) if on_delta else ():
            on_delta(1, letter)
        return ChatReply(answer, self.model, ChatUsage(100, 20))


@dataclass
class MemoryBlobs:
    data: dict[str, bytes] = field(default_factory=dict)
    reads: int = 0

    async def put(self, key: str, data: bytes, *, media_type: str | None = None) -> BlobRef:
        self.data[key] = data
        return BlobRef(
            key=key, sha256=hashlib.sha256(data).hexdigest(), size=len(data), media_type=media_type
        )

    async def put_stream(
        self,
        key_prefix: str,
        chunks: AsyncIterator[bytes],
        *,
        limit: int,
        media_type: str | None = None,
    ) -> BlobRef:
        return await self.put(key_prefix, b"".join([chunk async for chunk in chunks]))

    async def get(self, key: str) -> bytes:
        if key not in self.data:
            raise NotFound(f"no blob {key}")
        return self.data[key]

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.reads += 1
        data = await self.get(key)
        return [data[start : start + length] for start, length in ranges]

    def open_local(self, key: str) -> AbstractAsyncContextManager[Path]:
        raise NotFound("blobs in memory have no path")

    async def get_size(self, key: str) -> int | None:
        return len(self.data[key]) if key in self.data else None

    async def presign_url(self, key: str, lifetime_s: float) -> str | None:
        return None

    async def copy(self, source: str, target: str) -> None:
        self.data[target] = await self.get(source)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.data.pop(key, None)


class GuessedLanguageDetector:
    def detect(self, text: str) -> str | None:
        return guess_language(text)


class SteppingClock:
    """A clock that advances by a millisecond per call."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now
