"""Engines: slow, outside, exchangeable. Every engine has a `fingerprint` that changes when its output may."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from schemas.generations import ChunkConfig
from schemas.values import BlobRef, Extraction, Notice, ParentChunk, Transcript

Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A document's bytes on this machine's disk, for as long as its context is open. What its producer claims of it may be wrong."""

    path: Path
    name: str | None
    media_type: str | None
    size_bytes: int
    title: str | None = None
    language: str | None = None


@dataclass(frozen=True, slots=True)
class ParsePlan:
    """What a file really is and the parts it is worked in; parts are opaque, stable names such as `pages 1-16`."""

    media_type: str
    parts: tuple[str, ...]
    pages: int | None
    notices: tuple[Notice, ...] = ()


class Parser(Protocol):
    """Files to Markdown with places. Parsing runs in a killable child process with a deadline and a memory limit."""

    fingerprint: str

    async def plan(self, file: LocalFile) -> ParsePlan:
        """Look at the file. Raises UnreadableDocument (empty, corrupt, encrypted, no pages, unknown type) or LimitExceeded (pages, unpacked size), each with code and remedy."""

    async def parse(self, file: LocalFile, plan: ParsePlan, part: str) -> bytes:
        """One part, as bytes that `assemble` understands. Same errors, and LimitExceeded for deadline or memory."""

    def assemble(self, file: LocalFile, plan: ParsePlan, parts: Sequence[bytes]) -> Transcript:
        """The whole document from all of its parts, in order. Pure."""


class Chunker(Protocol):
    """Transcripts to parents and children. Cuts depend only on nearby text; ids only on document, section, text and its occurrence there. Pure."""

    fingerprint: str

    def chunk(self, document_id: UUID, title: str | None, transcript: Transcript) -> list[ParentChunk]: ...


class ChunkerFactory(Protocol):
    def __call__(self, config: ChunkConfig) -> Chunker: ...


@dataclass(frozen=True, slots=True)
class TextEmbedding:
    """One text's vectors. `states` are the token states for MaxSim, int8 of unit vectors × 127, [tokens, state_dimension], or None; `token_ids` belongs to its rows."""

    vector: NDArray[np.float16]
    states: NDArray[np.int8] | None = None
    token_ids: NDArray[np.int32] | None = None
    background_dense: float | None = None
    background_maxsim: float | None = None


@dataclass(frozen=True, slots=True)
class QueryEmbedding:
    """A question's vectors. `states` are unit rows, float32 [tokens, state_dimension]; `weights` is None where the idf must come from the candidates."""

    vector: NDArray[np.float32]
    states: NDArray[np.float32] | None = None
    token_ids: NDArray[np.int32] | None = None
    background_maxsim_mean: float | None = None


class Embedder(Protocol):
    """Texts to vectors. Raises EngineUnavailable when a server does not answer, PermanentError for input that it will never take; never returns NaN or another dimension."""

    fingerprint: str
    model: str
    dimension: int
    state_dimension: int

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        """Passages, in the order given; batching is the engine's."""

    async def embed_query(self, text: str) -> QueryEmbedding: ...


@dataclass(frozen=True, slots=True)
class RerankPassage:
    """A parent offered to a reranker; `states` are those of its children (int8 rows, as stored)."""

    id: UUID
    text: str
    states: Sequence[NDArray[np.int8]] = ()
    token_ids: Sequence[NDArray[np.int32]] = ()


class Reranker(Protocol):
    """Scores of passages for a question. `role` says whether the score is added to the fused one (MaxSim) or replaces it (a cross-encoder)."""

    name: str
    fingerprint: str
    role: Literal["added", "replaces"]
    threshold: float
    """Below this best score (less the engine's background, where it has one) nothing suits, until calibrated."""

    async def rerank(self, question: str, query: QueryEmbedding | None, passages: Sequence[RerankPassage]) -> list[float]:
        """One score a passage, in order. Raises EngineUnavailable."""


class Extractor(Protocol):
    """Names, relations and claims of chunks."""

    fingerprint: str

    async def extract(self, parents: Sequence[ParentChunk], language: str | None) -> Extraction: ...


@dataclass(frozen=True, slots=True)
class ChatUsage:
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A structured answer of a chat model, checked against the schema that was asked for."""

    data: Mapping[str, Any]
    model: str
    usage: ChatUsage = ChatUsage()
    calls: int = 1
    """Answers that it took, `usage` being that of all of them."""


class OnDelta(Protocol):
    """Takes a piece of what a model says while it says it, unchecked. `draft` counts from 1 and grows when the model begins anew: what was heard before is void."""

    def __call__(self, draft: int, delta: str, /) -> None: ...


class ChatModel(Protocol):
    model: str

    async def complete(self, system: str, user: str, schema: Mapping[str, Any], *, name: str, on_delta: OnDelta | None = None) -> ChatReply:
        """Structured output. Raises EngineUnavailable, PermanentError for a question that the server will never take, or ModelOutput when the model does not
        keep to the schema."""


class BlobStore(Protocol):
    """Bytes under keys; put is idempotent. Raises NotFound; EngineUnavailable when the store does not answer."""

    async def put(self, key: str, data: bytes, *, media_type: str | None = None) -> BlobRef: ...

    async def put_stream(self, key_prefix: str, chunks: AsyncIterator[bytes], *, limit: int, media_type: str | None = None) -> BlobRef:
        """Store while hashing, under `key_prefix` + sha256. Raises LimitExceeded as soon as more than `limit` bytes came, leaving nothing behind."""

    async def get(self, key: str) -> bytes: ...

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """(offset, length) pairs."""

    def open_local(self, key: str) -> AbstractAsyncContextManager[Path]:
        """A file to read from, for as long as the context is open."""

    async def get_size(self, key: str) -> int | None:
        """None when there is no such blob."""

    async def presign_url(self, key: str, lifetime_s: float) -> str | None:
        """An address that anybody may read the blob from until it expires; None where the store has no such thing."""

    async def copy(self, source: str, target: str) -> None: ...

    async def delete(self, keys: Sequence[str]) -> None: ...

    async def list_keys(self, prefix: str) -> list[str]:
        """The keys under a prefix that ends with a slash."""

    async def list_blobs(self, prefix: str) -> list[StoredBlob]:
        """What lies under it, with sizes and times of writing."""


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A blob as the store lists it."""

    key: str
    size_bytes: int
    modified_at: datetime


@dataclass(frozen=True, slots=True)
class FetchedFile:
    blob: BlobRef
    final_url: str
    media_type: str | None
    filename: str | None


class Fetcher(Protocol):
    async def fetch(self, url: str, key_prefix: str) -> FetchedFile:
        """Download into the blob store. Raises ForbiddenAddress (scheme, private or special address, also behind a redirect or a name), LimitExceeded (size, redirects, time), UnreadableDocument with code FETCH_FAILED for 4xx, EngineUnavailable for 5xx and network trouble."""


class LanguageDetector(Protocol):
    def detect(self, text: str) -> str | None:
        """BCP 47 primary subtag, or None when unsure."""


class SentenceSplitter(Protocol):
    def split(self, text: str) -> list[tuple[int, int]]:
        """Offsets of sentences that cover the text without gaps, in order."""


class NameNormalizer(Protocol):
    def normalize(self, name: str) -> str:
        """The key that spellings of the same name share: case, accents, spaces, punctuation and company suffixes taken out."""
