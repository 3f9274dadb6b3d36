"""Services of routes, which `anabranch.composition.api` builds, and FastAPI dependencies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Protocol, cast

from fastapi import Depends, Query, Request

from api.sessions import BrowserSessions, LinkSigner
from schemas.errors import Forbidden
from schemas.principals import Principal
from schemas.timestamps import Timestamp

if TYPE_CHECKING:
    from retrieval.profiles import ProfileCatalog
    from retrieval.retriever import EmbeddedTexts
    from schemas.findings import DependencyStatus, Finding
    from schemas.judgements import FeedbackReceipt, FeedbackRequest
    from schemas.ports.engines import BlobStore
    from schemas.ports.graph import GraphServer
    from schemas.principals import Authenticator, Principal
    from schemas.profiles import ReloadedConfig, SettingValue
    from schemas.questions import (
        OnProgress,
        QueryRequest,
        QueryResponse,
        SearchRequest,
        SearchResponse,
    )
    from services.api_keys import ApiKeyService, AuditLog
    from services.collections import CollectionService
    from services.entities import EntityService
    from services.erasure.service import ErasureService
    from services.experiments import ExperimentService
    from services.facts import FactService
    from services.generations.exams import ExamService, JudgementService
    from services.generations.reindex import ReindexService
    from services.generations.service import GenerationService
    from services.ingest import IngestService
    from services.monitoring.event_feed import EventFeed
    from services.monitoring.overview import MonitoringService
    from services.query.run_history import LineageService, RunHistory
    from services.query.runs import RunService
    from services.query.standing_questions import StandingQuestionService
    from services.replay.service import ReplayService
    from services.sources.service import SourceService
    from sql.catalog.access import PgAudit
    from sql.catalog.documents import PgDocuments
    from sql.catalog.listings import PgListings
    from sql.index.entities import PgEntities

# Types alone: routes import no service, and thus the OpenAPI document needs no database driver.


class ChatModelChooser(Protocol):
    """See `ChatModelState`. Raises NotFound and InvalidRequest."""

    async def describe(self) -> dict[str, Any]: ...

    async def choose(self, url: str, model: str) -> dict[str, Any]: ...

    async def clear(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Services:
    authenticate: Authenticator
    max_failures_per_minute: int  # failed authentications of one address
    count_failed_authentication: Callable[[], None]
    max_upload_bytes: int
    agent_feedback: bool  # whether agents may store feedback
    ingest: IngestService
    documents: PgDocuments
    entities: PgEntities
    entity_changes: EntityService
    graph: GraphServer | None  # None: no server is configured
    collections: CollectionService
    listings: PgListings
    sources: SourceService
    erasures: ErasureService
    replays: ReplayService
    generations: GenerationService
    exams: ExamService
    judgements: JudgementService
    facts: FactService
    questions: StandingQuestionService
    experiments: ExperimentService
    builds: ReindexService
    blobs: BlobStore
    profiles: ProfileCatalog
    reload_profiles: Callable[[], Awaitable[ReloadedConfig]]
    search: Callable[[Principal, SearchRequest], Awaitable[SearchResponse]]
    query: Callable[[Principal, QueryRequest, OnProgress], Coroutine[Any, Any, QueryResponse]]
    embed: Callable[[Principal, str, Sequence[str]], Coroutine[Any, Any, EmbeddedTexts]]
    record_feedback: Callable[[Principal, FeedbackRequest], Awaitable[FeedbackReceipt]]
    check_readiness: Callable[[], Awaitable[Sequence[DependencyStatus]]]
    get_health: Callable[[Principal], Awaitable[dict[str, Any]]]
    render_metrics: Callable[[], tuple[bytes, str]]
    get_config_schema: Callable[[], dict[str, Any]]
    list_settings: Callable[[], list[SettingValue]]
    chat_model: ChatModelChooser
    link_signer: LinkSigner
    sessions: BrowserSessions | None  # None without a local token
    hostnames: Sequence[str]  # besides those of the loopback address
    public_url: str  # prefix of links; empty: the address of the request
    runs: RunService
    run_history: RunHistory
    lineage: LineageService
    event_feed: EventFeed
    monitoring: MonitoringService
    diagnose: Callable[[], Awaitable[Sequence[Finding]]]
    api_keys: ApiKeyService
    audit: AuditLog
    audit_events: PgAudit


# Asynchronous, although nothing is awaited: FastAPI runs plain functions in threads, and switching
# there and back took a tenth of the API's CPU for an upload.
async def get_services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


async def get_caller(request: Request) -> Principal:
    return cast(Principal, request.scope["principal"])


async def require_whole_tenant(request: Request) -> Principal:
    """Raises Forbidden for a caller that is restricted to the documents of some readers."""
    principal = await get_caller(request)
    # Counts and lists of the whole tenant would reveal documents of other readers.
    if principal.readers is not None:
        raise Forbidden(
            f"{principal.id} is restricted to some readers' documents; this operation concerns "
            f"all of tenant {principal.tenant}.",
            code="LIMITED_TO_READERS",
            remedy="Use a credential without readers.",
        )
    return principal


ServicesDep = Annotated[Services, Depends(get_services)]
# Everything that a route reads or changes belongs to `caller.tenant`.
Caller = Annotated[Principal, Depends(get_caller)]
# For operations that cannot be restricted to the documents of some readers.
WholeTenant = Annotated[Principal, Depends(require_whole_tenant)]
IdPrefix = Annotated[
    str | None,
    Query(pattern="^(-?[0-9a-fA-F]){4,32}-?$", description="First digits of the id, at least 4."),
]
PageLimit = Annotated[int, Query(ge=1, le=500)]
RevisionNumber = Annotated[
    int | None, Query(ge=1, le=2**31 - 1, description="One revision of the document.")
]
FromTime = Annotated[
    Timestamp | None,
    Query(alias="from", description="At this time or later. UTC unless a zone is given."),
]
UntilTime = Annotated[Timestamp | None, Query(alias="to", description="Before this time.")]
PageSort = Annotated[
    str | None,
    Query(
        max_length=64,
        description="Column to sort by, ascending, or `COLUMN:desc`. An error lists the columns.",
    ),
]
PageCursor = Annotated[str | None, Query(max_length=512, description="`next` of the previous page")]
