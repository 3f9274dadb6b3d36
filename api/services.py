"""What the routes call. Composition fills it in; a test hands in what it likes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from api.feeds import LogFeed
from api.links import Links
from api.replays import DiscardRequest, RedriveRequest, ReplayRequest
from api.sessions import Sessions
from api.tracing import History, Lineage
from evaluation.comparing import ComparisonRequest
from evaluation.gate import PromotionRequest
from schemas.api_keys import ApiKey, ApiKeyRequest, IssuedApiKey, RotationRequest
from schemas.events.erasure import Scope
from schemas.judgements import FeedbackReceipt, FeedbackRequest
from schemas.languages import Language
from schemas.ports.engines import Blobs
from schemas.ports.search import Documents
from schemas.principals import Authenticator, Principal
from schemas.profiles import Profile
from schemas.questions import QueryRequest, QueryResponse, SearchRequest, SearchResponse, Tell
from schemas.sources import SourceRequest
from schemas.values import Amendment, BlobRef, DocumentFields, ExternalId, Notice


class IngestRequest(DocumentFields):
    """One document: exactly one of `url`, `text` and `storage_key`, or a file beside these fields in multipart form."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str | None = Field(None, max_length=8192, description="fetched once, from public addresses only")
    text: str | None = Field(None, description="plain text or Markdown")
    language: Language | None = None
    storage_key: str | None = Field(None, max_length=1024, description="under uploads/<tenant>/ in the blob store")
    external_id: ExternalId | None = None
    force: bool = Field(False, description="process again even if nothing changed")


class Receipt(BaseModel):
    """The event is durable in the log."""

    status: str = "accepted"
    document_id: UUID
    ingestion_job_id: UUID
    external_id: str | None
    content_sha256: str | None = Field(description="null for a URL: it is fetched later, at the door")
    duplicate: bool = Field(description="the document has these bytes, collection, tags and metadata already: nothing is done again")
    warnings: list[Notice] = []


@dataclass(frozen=True, slots=True)
class Upcoming:
    """The event that a request will be. Its id is the caller's Idempotency-Key where `chosen`: then it may have come before."""

    event_id: str
    chosen: bool


class Intake(Protocol):
    """Documents on their way into the log."""

    def begin(self, caller: Principal, idempotency_key: str | None) -> Upcoming: ...

    async def store(self, tenant: str, event: Upcoming, chunks: AsyncIterator[bytes], media_type: str | None) -> BlobRef:
        """Stage the bytes for this event alone. Raises LimitExceeded as soon as too much came."""

    async def accept(self, caller: Principal, request: IngestRequest, upload: BlobRef | None, event: Upcoming) -> Receipt:
        """Returns once the log has the event. Raises InvalidRequest, Forbidden, LogUnavailable."""

    async def discard(self, event: Upcoming, upload: BlobRef) -> None:
        """The event will not be: what was staged for it goes."""

    async def amend(self, caller: Principal, document_id: UUID, amendment: Amendment) -> UUID:
        """The job. Raises NotFound also for a withdrawn document, InvalidRequest for an amendment that says nothing, LogUnavailable."""

    async def withdraw(self, caller: Principal, document_id: UUID) -> UUID:
        """The ingestion job. Raises NotFound, LogUnavailable."""


class ReplayDesk(Protocol):
    """Raises NotFound for what is not there, InvalidRequest for what cannot be done with it."""

    async def causes(self, tenant: str) -> list[dict[str, Any]]: ...

    async def redrive(self, tenant: str, wanted: RedriveRequest) -> dict[str, Any]: ...

    async def discard(self, tenant: str, wanted: DiscardRequest) -> dict[str, Any]: ...

    async def replay(self, tenant: str, wanted: ReplayRequest) -> dict[str, Any]: ...

    async def all(self, tenant: str, limit: int) -> list[dict[str, Any]]: ...

    async def one(self, tenant: str, replay: UUID) -> dict[str, Any]: ...

    async def set_state(self, tenant: str, replay: UUID, wanted: str) -> dict[str, Any]: ...


class Erasures(Protocol):
    async def request(self, tenant: str, scope: Scope, name: str) -> UUID:
        """The receipt's id, once the request is durable. Raises NotFound for a document of which nothing is known, LogUnavailable."""

    async def receipt(self, tenant: str, receipt_id: UUID) -> dict[str, Any] | None: ...

    async def receipts(self, tenant: str, limit: int) -> list[dict[str, Any]]: ...


class Entities(Protocol):
    async def find(
        self, caller: Principal, *, text: str | None, kind: str | None, after: str | None, limit: int
    ) -> tuple[list[dict[str, Any]], str | None]: ...

    async def get(self, caller: Principal, entity_id: UUID) -> dict[str, Any] | None: ...

    async def subgraph(self, caller: Principal, seeds: Sequence[UUID], *, hops: int, limit: int) -> dict[str, Any]: ...


class Records(Protocol):
    """Lists that are read only: runs, dead letters, collections."""

    async def collections(self, caller: Principal) -> list[dict[str, Any]]: ...

    async def runs(self, caller: Principal, *, after: str | None, limit: int) -> tuple[list[dict[str, Any]], str | None]: ...

    async def run(self, caller: Principal, run_id: UUID) -> dict[str, Any] | None: ...

    async def dead_letters(self, tenant: str, *, stage: str | None, after: str | None, limit: int) -> tuple[list[dict[str, Any]], str | None]: ...


class Sources(Protocol):
    """What documents are taken from. Decisions return once they are durable; raise NotFound, InvalidRequest, LogUnavailable."""

    async def find(self, tenant: str) -> list[dict[str, Any]]: ...

    async def get(self, tenant: str, name: str) -> dict[str, Any]: ...

    async def add(self, tenant: str, request: SourceRequest) -> dict[str, Any]: ...

    async def remove(self, tenant: str, name: str, *, withdraw: bool) -> dict[str, Any]: ...

    async def reset(self, caller: Principal, name: str) -> dict[str, Any]: ...


class GenerationDesk(Protocol):
    async def all(self, caller: Principal) -> list[dict[str, Any]]: ...

    async def one(self, caller: Principal, name: str) -> dict[str, Any]:
        """Raises NotFound."""

    async def compare(self, tenant: str, a: str, b: str, wanted: ComparisonRequest) -> dict[str, Any]:
        """Raises NotFound, InvalidRequest."""

    async def promote(self, tenant: str, name: str, wanted: PromotionRequest) -> dict[str, Any]:
        """Raises NotFound, InvalidRequest, PermanentError with code GENERATION_BEHIND; then nothing has changed."""

    async def roll_back(self, expected: str | None) -> dict[str, Any]:
        """The same errors."""

    async def drop(self, name: str) -> dict[str, Any]:
        """Raises NotFound, PermanentError with code GENERATION_IS_LIVE."""


class ApiKeys(Protocol):
    """Keys of the caller's tenant. Raise NotFound, Forbidden, LogUnavailable."""

    async def create(self, caller: Principal, request: ApiKeyRequest, request_id: str | None = None) -> IssuedApiKey: ...

    async def list_keys(self, caller: Principal, *, after: str | None, limit: int) -> tuple[list[ApiKey], str | None]: ...

    async def rotate(self, caller: Principal, key_id: str, request: RotationRequest, request_id: str | None = None) -> IssuedApiKey: ...

    async def revoke(self, caller: Principal, key_id: str, request_id: str | None = None) -> ApiKey: ...


class AuditLog(Protocol):
    """Returns once the log has the event. Raises LogUnavailable."""

    async def record(self, caller: Principal, what: str, subject: str | None, request_id: str | None, outcome: str = "done") -> None: ...

    async def visit(self, caller: Principal, request_id: str | None) -> None:
        """Record that an operator acts for another tenant."""


class AuditEvents(Protocol):
    async def list_events(self, tenant: str | None, *, after: str | None, limit: int) -> tuple[list[dict[str, Any]], str | None]:
        """Of all tenants where none is named. Raises InvalidRequest."""


class Plan(Protocol):
    def body(self) -> dict[str, Any]: ...


class Builds(Protocol):
    """Generations on their way. Raise InvalidRequest, NotFound, PermanentError with code NOT_RETAINED, LogUnavailable."""

    async def plan(self, sets: Sequence[str]) -> Plan: ...

    async def start(self, sets: Sequence[str], *, events_per_second: float | None = None) -> tuple[str, Plan]:
        """Its name, once the decision is durable."""

    async def rebuild(self, *, keep: bool, events_per_second: float | None = None) -> str: ...

    async def show(self, name: str) -> dict[str, Any]: ...

    async def show_soon(self, name: str) -> dict[str, Any]: ...

    async def pace(self, name: str, pace: Mapping[str, Any]) -> dict[str, Any]:
        """`paused` and `events_per_second`; what is left out stays as it is."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """One line of `/readyz`."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Services:
    authenticate: Authenticator
    max_failures: int
    """Failed authentications of one address in a minute."""
    authentication_failed: Callable[[], None]
    max_bytes: int
    intake: Intake
    documents: Documents
    entities: Entities
    records: Records
    sources: Sources
    erasures: Erasures
    replays: ReplayDesk
    desk: GenerationDesk
    builds: Builds
    blobs: Blobs
    profiles: Callable[[], Sequence[Profile]]
    search: Callable[[Principal, SearchRequest], Awaitable[SearchResponse]]
    query: Callable[[Principal, QueryRequest, Tell], Awaitable[QueryResponse]]
    feedback: Callable[[Principal, FeedbackRequest], Awaitable[FeedbackReceipt]]
    ready: Callable[[], Awaitable[Sequence[Dependency]]]
    health: Callable[[Principal], Awaitable[dict[str, Any]]]
    metrics: Callable[[], tuple[bytes, str]]
    config_schema: Callable[[], dict[str, Any]]
    links: Links
    sessions: Sessions | None
    """None where there is no local token."""
    hosts: Sequence[str]
    """Names of this server beside those of the loopback address."""
    public_url: str
    """Links begin with it; empty for relative ones."""
    history: History
    lineage: Lineage
    feed: LogFeed
    keys: ApiKeys
    audit: AuditLog
    audit_events: AuditEvents
