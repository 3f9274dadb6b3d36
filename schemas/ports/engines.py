"""Ports of engines: slow, external and replaceable.

Every engine has a `fingerprint` that changes when its output may change.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from schemas.generations import EntitySchema
from schemas.values import BlobRef, Extraction, Notice, ParentChunk, Transcript

Vectors = NDArray[np.float32]
TokenSpans = NDArray[np.int64]
"""[tokens, 2]: the first character of each token, and the one behind its last."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A document's bytes on the local disk, while the context that yields it is open.

    Name and type are the producer's claims and may be wrong.
    """

    path: Path
    name: str | None
    media_type: str | None
    size_bytes: int
    title: str | None = None
    language: str | None = None


@dataclass(frozen=True, slots=True)
class ParsePlan:
    """The detected type of a file, and the parts to parse it in.

    Parts are opaque, stable names such as `pages 1-16`.
    """

    media_type: str
    parts: tuple[str, ...]
    pages: int | None
    notices: tuple[Notice, ...] = ()
    part_pages: int = 0
    """Pages of each part; the last one may have fewer."""


class Parser(Protocol):
    """Converts files to Markdown with positions, in a child process with a deadline and a memory
    limit.
    """

    fingerprint: str

    async def plan(self, file: LocalFile) -> ParsePlan:
        """Inspect the file.

        Raises UnreadableDocument (empty, corrupt, encrypted, no pages, unknown type) or
        LimitExceeded (pages, unpacked size), each with code and remedy.
        """

    async def parse(self, file: LocalFile, plan: ParsePlan, part: str) -> bytes:
        """Parse one part into bytes for `assemble`.

        Raises like `plan`, and LimitExceeded for deadline or memory.
        """

    def assemble(self, file: LocalFile, plan: ParsePlan, parts: Sequence[bytes]) -> Transcript:
        """Combine all parts, in order, into the transcript. Pure."""


class Chunker(Protocol):
    """Splits transcripts into parent and child chunks. Pure.

    Boundaries depend only on nearby text. Ids depend only on the document, the section, the text
    and its occurrence there.
    """

    fingerprint: str

    def chunk(
        self, document_id: UUID, title: str | None, transcript: Transcript
    ) -> list[ParentChunk]: ...


@dataclass(frozen=True, slots=True)
class TextEmbedding:
    """The vectors of one text.

    `states` are the packed token states and token ids for late interaction, or None.
    """

    vector: NDArray[np.float16]
    states: bytes | None = None
    background_dense: float | None = None
    background_maxsim: float | None = None


@dataclass(frozen=True, slots=True)
class QueryEmbedding:
    """The vectors of a question. `states` are unit rows, float32 [tokens, state_dimension].

    `language_means` are mean states of the same texts by language: their differences are those
    between languages, whatever is said. They and `background_maxsim_mean` are of the leading 64
    columns, which carry most of a state, as unit rows.
    """

    vector: NDArray[np.float32]
    states: NDArray[np.float32] | None = None
    token_ids: NDArray[np.int32] | None = None
    background_maxsim_mean: float | None = None
    language_means: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)


class Embedder(Protocol):
    """Converts texts to vectors. Never returns NaN or another dimension.

    Raises EngineUnavailable if the server does not respond, and PermanentError for input that it
    will never accept.
    """

    fingerprint: str
    model: str
    dimension: int
    state_dimension: int

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        """Embed passages, in the order given. The engine batches."""

    async def embed_query(self, text: str) -> QueryEmbedding: ...

    async def locate_tokens(self, texts: Sequence[str]) -> list[TokenSpans]:
        """Return the characters of each text that the rows of its `states` stand for.

        No rows for an embedder without token states.
        """


@dataclass(frozen=True, slots=True)
class RerankPassage:
    """A passage to rerank: `text` for a cross-encoder, else empty; for late interaction the
    `states` of its children, unit rows, and the mean scores of general questions with
    them.
    """

    id: UUID
    text: str
    states: Sequence[NDArray[np.float32]] = ()
    token_ids: Sequence[NDArray[np.int32]] = ()
    backgrounds: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class TokenWeighting:
    """Weights of the question's token states for the order of late interaction, in place of the
    reranker's own.

    The order is `share` of the score with these weights, less `background_share` of the child's
    background, and the rest of the score with the reranker's weights.
    """

    weights: NDArray[np.float32]
    background_share: float = 0.0
    share: float = 1.0


class RerankScore(NamedTuple):
    """Score of a passage, and the one to order it by, which for a cross-encoder is the same."""

    score: float
    order: float


class Reranker(Protocol):
    """Scores passages for a question.

    `role` says whether the score is added to the fused one (MaxSim) or replaces it (a
    cross-encoder).
    """

    name: str
    fingerprint: str
    role: Literal["added", "replaces"]
    threshold: float
    """Refuse the question if the best score, less the engine's background score, is below this.
    Uncalibrated default.
    """

    def count_requests(self, passages_count: int) -> int:
        """Return the requests to a server that so many passages take; 0 for a local engine."""

    async def rerank(
        self,
        question: str,
        query: QueryEmbedding | None,
        passages: Sequence[RerankPassage],
        weighting: TokenWeighting | None = None,
    ) -> list[RerankScore]:
        """Return one score per passage, in order. A cross-encoder ignores the weighting.

        Raises EngineUnavailable.
        """


class Extractor(Protocol):
    """Extracts names, relations and claims from chunks."""

    fingerprint: str

    async def extract(self, parents: Sequence[ParentChunk], language: str | None) -> Extraction: ...

    def with_schema(self, schema: EntitySchema) -> Extractor:
        """Return an extractor of these types alone."""


@dataclass(frozen=True, slots=True)
class ChatUsage:
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A structured reply of a chat model, validated against the requested schema."""

    data: Mapping[str, Any]
    model: str
    usage: ChatUsage = ChatUsage()
    calls: int = 1
    """Calls that the reply took, including failed ones. `usage` is their total."""


class OnDelta(Protocol):
    """Receives pieces of a reply while the model writes it, unvalidated.

    `draft` counts from 1 and grows when the model restarts; discard the pieces of earlier drafts.
    """

    def __call__(self, draft: int, delta: str, /) -> None: ...


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """Options of one request; None keeps the server's configured model and the engine's default."""

    model: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None


DEFAULT_CHAT_OPTIONS = ChatOptions()


class ChatModel(Protocol):
    model: str

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
        """Request a structured reply.

        Raises EngineUnavailable, PermanentError for a request that the server will never accept, or
        InvalidModelOutput if the reply does not match the schema.
        """


class BlobStore(Protocol):
    """Bytes by key; writing is idempotent.

    Raises NotFound, and EngineUnavailable if the store does not respond.
    """

    async def put(self, key: str, data: bytes, *, media_type: str | None = None) -> BlobRef: ...

    async def put_stream(
        self,
        key_prefix: str,
        chunks: AsyncIterator[bytes],
        *,
        limit: int,
        media_type: str | None = None,
    ) -> BlobRef:
        """Store while hashing, under `key_prefix` + SHA-256.

        Raises LimitExceeded as soon as more than `limit` bytes have arrived, and stores nothing
        then.
        """

    async def get(self, key: str) -> bytes: ...

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read ranges given as (offset, length)."""

    def open_local(self, key: str) -> AbstractAsyncContextManager[Path]:
        """Open a local file with the blob's bytes while the context is open."""

    async def get_size(self, key: str) -> int | None:
        """Return the size in bytes, or None if there is no such blob."""

    async def presign_url(self, key: str, lifetime_s: float) -> str | None:
        """Return a URL that anyone may read until it expires, or None if the store does not support
        this.
        """

    async def copy(self, source: str, target: str) -> None: ...

    async def move(self, source: str, target: str) -> None:
        """Move a blob. A store without renaming copies it, then deletes it."""

    async def delete(self, keys: Sequence[str]) -> None: ...

    async def list_keys(self, prefix: str) -> list[str]:
        """List the keys under a prefix that ends with a slash."""

    async def list_blobs(self, prefix: str) -> list[StoredBlob]:
        """List the blobs under a prefix, with size and modification time."""


@dataclass(frozen=True, slots=True)
class StoredBlob:
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
        """Download into the blob store.

        Raises ForbiddenAddress (scheme, private or special address, also behind a redirect or a
        name), LimitExceeded (size, redirects, time), UnreadableDocument with code FETCH_FAILED for
        4xx, and EngineUnavailable for 5xx and network errors.
        """


class LanguageDetector(Protocol):
    def detect(self, text: str) -> str | None:
        """Return the BCP 47 primary subtag, or None if unsure."""


async def load_markdown(markdown: str | None, blob_key: str | None, blobs: BlobStore) -> str:
    """Return the text of a document; a long one is stored as a blob."""
    if markdown is not None:
        return markdown
    return Transcript.decompress(await blobs.get(blob_key or "")).markdown
