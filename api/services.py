"""Ports of the services that routes call.

`anabranch.composition` provides them; tests provide fakes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from api.sessions import BrowserSessions
from api.signed_links import LinkSigner
from evaluation.comparison import ComparisonRequest
from evaluation.promotion_gate import PromotionRequest
from schemas.api_keys import ApiKey, ApiKeyRequest, IssuedApiKey, RotationRequest
from schemas.entities import EntityAmendment
from schemas.event_feed import FeedFilter, FeedMessage, LogPage
from schemas.events.control import Scope
from schemas.exams import CalibrationRequest, ExamRequest
from schemas.facts import Fact, FactReceipt, FactRequest, FactStatus
from schemas.ingest import IngestReceipt, IngestRequest, PlannedEvent
from schemas.judgements import FeedbackReceipt, FeedbackRequest
from schemas.lineage import DocumentLineage, RunLineage
from schemas.ports.engines import BlobStore
from schemas.ports.graph import GraphServer
from schemas.ports.search import DocumentCatalog
from schemas.principals import Authenticator, Principal
from schemas.profiles import NamedProfile, ReloadedConfig
from schemas.questions import OnProgress, QueryRequest, QueryResponse, SearchRequest, SearchResponse
from schemas.readiness import DependencyStatus
from schemas.replay_requests import DiscardRequest, RedriveRequest, ReplayRequest
from schemas.run_records import RunDiff, RunMessage, RunStatus
from schemas.sources import SourceRequest
from schemas.values import Amendment, BlobRef


class IngestPort(Protocol):
    def plan_event(self, caller: Principal, idempotency_key: str | None) -> PlannedEvent: ...

    async def stage_upload(
        self, tenant: str, event: PlannedEvent, chunks: AsyncIterator[bytes], media_type: str | None
    ) -> BlobRef:
        """Stage the bytes for this event alone.

        Raises LimitExceeded as soon as there are too many.
        """

    async def submit_document(
        self, caller: Principal, request: IngestRequest, upload: BlobRef | None, event: PlannedEvent
    ) -> IngestReceipt:
        """Publish the event and wait for the log.

        Raises InvalidRequest, Forbidden, LogUnavailable.
        """

    async def discard_upload(self, event: PlannedEvent, upload: BlobRef) -> None:
        """Delete the staged upload of an event that will not be published."""

    async def amend_document(
        self, caller: Principal, document_id: UUID, amendment: Amendment
    ) -> UUID:
        """Return the ingestion job.

        Raises NotFound (also for a withdrawn document), InvalidRequest for an empty amendment,
        LogUnavailable.
        """

    async def withdraw_document(self, caller: Principal, document_id: UUID) -> UUID:
        """Return the ingestion job. Raises NotFound, LogUnavailable."""


class ReplayPort(Protocol):
    """Raises NotFound for unknown ids, InvalidRequest for actions that a state does not allow."""

    async def list_causes(self, tenant: str) -> list[dict[str, Any]]: ...

    async def redrive(self, tenant: str, request: RedriveRequest) -> dict[str, Any]: ...

    async def discard_dead_letters(
        self, tenant: str, request: DiscardRequest
    ) -> dict[str, Any]: ...

    async def start_replay(self, tenant: str, request: ReplayRequest) -> dict[str, Any]: ...

    async def list_replays(self, tenant: str, limit: int) -> list[dict[str, Any]]: ...

    async def get_replay(self, tenant: str, replay_id: UUID) -> dict[str, Any]: ...

    async def set_replay_state(
        self, tenant: str, replay_id: UUID, state: str
    ) -> dict[str, Any]: ...


class ErasurePort(Protocol):
    async def request_erasure(self, tenant: str, scope: Scope, name: str) -> UUID:
        """Return the receipt's id once the request is durable.

        Raises NotFound for an unknown document, LogUnavailable.
        """

    async def get_receipt(self, tenant: str, receipt_id: UUID) -> dict[str, Any] | None: ...

    async def list_receipts(self, tenant: str, limit: int) -> list[dict[str, Any]]: ...


class ProfilePort(Protocol):
    def list_profiles(self) -> Sequence[NamedProfile]: ...

    def describe(self, profile_type: str, name: str) -> NamedProfile:
        """Raises NotFound."""


class EntityPort(Protocol):
    async def list_entities(
        self,
        caller: Principal,
        *,
        text: str | None,
        kind: str | None,
        after: str | None,
        limit: int,
    ) -> tuple[list[dict[str, Any]], str | None]: ...

    async def get_entity(self, caller: Principal, entity_id: UUID) -> dict[str, Any] | None: ...

    async def find_by_name(
        self, caller: Principal, name: str, kind: str | None
    ) -> list[dict[str, Any]]: ...

    async def get_subgraph(
        self, caller: Principal, seeds: Sequence[UUID], *, hops: int, limit: int
    ) -> dict[str, Any]: ...


class CollectionPort(Protocol):
    """Changes return once they are durable. Raise NotFound, InvalidRequest, LogUnavailable."""

    async def list_collections(self, caller: Principal) -> list[dict[str, Any]]: ...

    async def get_collection(self, caller: Principal, name: str) -> dict[str, Any]: ...

    async def set_default_profile(
        self, caller: Principal, name: str, profile: str | None
    ) -> dict[str, Any]: ...

    async def delete_collection(self, caller: Principal, name: str) -> UUID: ...


class ListingPort(Protocol):
    """Read-only lists: runs, facts and dead letters."""

    async def list_runs(
        self, caller: Principal, *, after: str | None, limit: int
    ) -> tuple[list[dict[str, Any]], str | None]: ...

    async def list_facts(
        self, caller: Principal, *, status: FactStatus | None, after: str | None, limit: int
    ) -> tuple[list[Fact], str | None]: ...

    async def list_dead_letters(
        self, tenant: str, *, stage: str | None, after: str | None, limit: int
    ) -> tuple[list[dict[str, Any]], str | None]: ...


class SourcePort(Protocol):
    """Changes return once they are durable. Raise NotFound, InvalidRequest, LogUnavailable."""

    async def list_sources(self, tenant: str) -> list[dict[str, Any]]: ...

    async def get_source(self, tenant: str, name: str) -> dict[str, Any]: ...

    async def add_source(self, tenant: str, request: SourceRequest) -> dict[str, Any]: ...

    async def remove_source(self, tenant: str, name: str, *, withdraw: bool) -> dict[str, Any]: ...

    async def reset_source(self, caller: Principal, name: str) -> dict[str, Any]: ...


class FactPort(Protocol):
    """Raise NotFound for a fact that the caller may not read, InvalidRequest, LogUnavailable."""

    async def propose(self, caller: Principal, request: FactRequest) -> FactReceipt: ...

    async def approve(self, caller: Principal, fact_id: UUID) -> FactReceipt: ...

    async def reject(self, caller: Principal, fact_id: UUID, reason: str | None) -> FactReceipt: ...

    async def get(self, caller: Principal, fact_id: UUID) -> Fact: ...


class ExamPort(Protocol):
    """Raise NotFound, InvalidRequest, TransientError, LogUnavailable."""

    async def examine(self, caller: Principal, request: ExamRequest) -> dict[str, Any]: ...

    async def calibrate(self, caller: Principal, request: CalibrationRequest) -> dict[str, Any]: ...

    async def list_exams(self, caller: Principal, limit: int) -> list[dict[str, Any]]: ...

    async def get_exam(self, caller: Principal, exam_id: UUID) -> dict[str, Any]: ...


class JudgementPort(Protocol):
    """Raise TransientError."""

    async def list_candidates(self, caller: Principal, limit: int) -> list[dict[str, Any]]: ...

    async def draft_questions(
        self, caller: Principal, questions: int, seed: int
    ) -> list[dict[str, Any]]: ...

    async def export_judgements(
        self, caller: Principal, since: datetime | None, until: datetime | None
    ) -> dict[str, Any]: ...


class GenerationPort(Protocol):
    async def list_generations(self, caller: Principal) -> list[dict[str, Any]]: ...

    async def get_generation(self, caller: Principal, name: str) -> dict[str, Any]:
        """Raises NotFound."""

    async def compare(
        self, tenant: str, a: str, b: str, request: ComparisonRequest
    ) -> dict[str, Any]:
        """Raises NotFound, InvalidRequest."""

    async def promote(self, tenant: str, name: str, request: PromotionRequest) -> dict[str, Any]:
        """Raises NotFound, InvalidRequest, PermanentError with code GENERATION_BEHIND.

        The live generation is then unchanged.
        """

    async def roll_back(self, expected_live: str | None) -> dict[str, Any]:
        """Raises as `promote` does."""

    async def drop(self, name: str) -> dict[str, Any]:
        """Raises NotFound, PermanentError with code GENERATION_IS_LIVE."""


class ApiKeyPort(Protocol):
    """Keys of the caller's tenant. Raise NotFound, Forbidden, LogUnavailable."""

    async def create(
        self, caller: Principal, request: ApiKeyRequest, request_id: str | None = None
    ) -> IssuedApiKey: ...

    async def list_keys(
        self, caller: Principal, *, after: str | None, limit: int
    ) -> tuple[list[ApiKey], str | None]: ...

    async def rotate(
        self,
        caller: Principal,
        key_id: str,
        request: RotationRequest,
        request_id: str | None = None,
    ) -> IssuedApiKey: ...

    async def revoke(
        self, caller: Principal, key_id: str, request_id: str | None = None
    ) -> ApiKey: ...


class AuditPort(Protocol):
    """Returns once the event is durable in the log. Raises LogUnavailable."""

    async def record(
        self,
        caller: Principal,
        action: str,
        subject: str | None,
        request_id: str | None,
        outcome: str = "done",
    ) -> None: ...

    async def record_visit(self, caller: Principal, request_id: str | None) -> None:
        """Record that an operator acts for another tenant."""


class AuditTrailPort(Protocol):
    async def list_events(
        self, tenant: str | None, *, after: str | None, limit: int
    ) -> tuple[list[dict[str, Any]], str | None]:
        """List events of all tenants when `tenant` is None. Raises InvalidRequest."""


class RunHistoryPort(Protocol):
    """Raises NotFound for an unknown or incompletely recorded run."""

    async def get_run(self, caller: Principal, run_id: UUID) -> dict[str, Any]: ...

    async def rerun(self, caller: Principal, run_id: UUID) -> dict[str, Any]: ...

    async def diff_run(
        self, caller: Principal, run_id: UUID, other_run_id: UUID | None
    ) -> RunDiff: ...


class RunPort(Protocol):
    """Questions in the background. Raises NotFound for a run that the caller may not see."""

    async def start(self, caller: Principal, request: QueryRequest) -> UUID:
        """Raises InvalidRequest, TransientError with code TOO_MANY_RUNS."""

    async def get_status(self, caller: Principal, run_id: UUID) -> RunStatus: ...

    async def cancel(self, caller: Principal, run_id: UUID) -> RunStatus: ...

    def follow(
        self, caller: Principal, run_id: UUID, after: int
    ) -> AsyncGenerator[RunMessage, None]:
        """Stream the messages after a number; the last one is `answer` or `stopped`."""

    def interrupt(self) -> None:
        """Stop every run, because the process ends."""


class LineagePort(Protocol):
    """Raises NotFound for unknown ids, TransientError when log, tables or blobs are unavailable."""

    async def get_document_lineage(
        self, caller: Principal, document_id: UUID
    ) -> DocumentLineage: ...

    async def get_run_lineage(
        self, caller: Principal, run_id: UUID, *, sentence: int | None, citation: int | None
    ) -> RunLineage: ...

    def to_prov(self, lineage: DocumentLineage | RunLineage) -> dict[str, Any]:
        """Format as PROV-JSON."""


class EventFeedPort(Protocol):
    """Raises PlaceAhead, LogUnavailable, DatabaseUnavailable; InvalidRequest for a bad cursor."""

    async def read_page(
        self,
        caller: Principal,
        events: FeedFilter,
        *,
        after: str,
        limit: int,
        since: datetime | None = None,
    ) -> LogPage:
        """Read a page after a cursor, `begin` or `now`.

        Events appended before `since` are skipped.
        """

    def follow(
        self, caller: Principal, events: FeedFilter, *, after: str | None
    ) -> AsyncGenerator[FeedMessage, None]:
        """Stream messages after a cursor until the server stops; `open` comes first.

        Starts at the current end when `after` is None or, after a `reset` message, when it belongs
        to another log. With a document, its status is included whenever it changes.
        """

    def close_streams(self) -> None:
        """End every stream with a `bye` message."""


class BuildPlan(Protocol):
    def to_dict(self) -> dict[str, Any]: ...


class BuildPort(Protocol):
    """Builds of generations.

    Raise InvalidRequest, NotFound, PermanentError with code NOT_RETAINED, LogUnavailable.
    """

    async def plan_build(self, settings: Sequence[str]) -> BuildPlan: ...

    async def start_reindex(
        self, settings: Sequence[str], *, events_per_second: float | None = None
    ) -> tuple[str, BuildPlan]:
        """Return the generation's name, once the decision is durable."""

    async def start_rebuild(
        self, *, keep_previous: bool, events_per_second: float | None = None
    ) -> str: ...

    async def get_build(self, name: str) -> dict[str, Any]: ...

    async def get_build_or_pending(self, name: str) -> dict[str, Any]: ...

    async def change_pace(self, name: str, pace: Mapping[str, Any]) -> dict[str, Any]:
        """Set `paused` and `events_per_second`; omitted ones stay unchanged."""


@dataclass(frozen=True, slots=True)
class Services:
    authenticate: Authenticator
    max_failures_per_minute: int  # failed authentications of one address
    count_failed_authentication: Callable[[], None]
    max_upload_bytes: int
    ingest: IngestPort
    documents: DocumentCatalog
    entities: EntityPort
    amend_entity: Callable[[Principal, UUID, EntityAmendment], Awaitable[dict[str, Any]]]
    graph: GraphServer | None  # None: no server is configured
    collections: CollectionPort
    listings: ListingPort
    sources: SourcePort
    erasures: ErasurePort
    replays: ReplayPort
    generations: GenerationPort
    exams: ExamPort
    judgements: JudgementPort
    facts: FactPort
    builds: BuildPort
    blobs: BlobStore
    profiles: ProfilePort
    reload_profiles: Callable[[], Awaitable[ReloadedConfig]]
    search: Callable[[Principal, SearchRequest], Awaitable[SearchResponse]]
    query: Callable[[Principal, QueryRequest, OnProgress], Awaitable[QueryResponse]]
    record_feedback: Callable[[Principal, FeedbackRequest], Awaitable[FeedbackReceipt]]
    check_readiness: Callable[[], Awaitable[Sequence[DependencyStatus]]]
    get_health: Callable[[Principal], Awaitable[dict[str, Any]]]
    render_metrics: Callable[[], tuple[bytes, str]]
    get_config_schema: Callable[[], dict[str, Any]]
    link_signer: LinkSigner
    sessions: BrowserSessions | None  # None without a local token
    hostnames: Sequence[str]  # besides those of the loopback address
    public_url: str  # prefix of links; empty: the address of the request
    runs: RunPort
    run_history: RunHistoryPort
    lineage: LineagePort
    event_feed: EventFeedPort
    api_keys: ApiKeyPort
    audit: AuditPort
    audit_events: AuditTrailPort
