"""Services, tables and settings that routes call; `anabranch.composition.api` builds them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from api.sessions import BrowserSessions
from api.signed_links import LinkSigner

# Types alone: routes import no service, and thus the OpenAPI document needs no database driver.
if TYPE_CHECKING:
    from retrieval.profiles import ProfileCatalog
    from schemas.findings import Finding
    from schemas.judgements import FeedbackReceipt, FeedbackRequest
    from schemas.ports.engines import BlobStore
    from schemas.ports.graph import GraphServer
    from schemas.principals import Authenticator, Principal
    from schemas.profiles import ReloadedConfig
    from schemas.questions import (
        OnProgress,
        QueryRequest,
        QueryResponse,
        SearchRequest,
        SearchResponse,
    )
    from schemas.readiness import DependencyStatus
    from schemas.setting_values import SettingValue
    from services.api_keys import ApiKeyService
    from services.audit_log import AuditLog
    from services.collections import CollectionService
    from services.entities import EntityService
    from services.erasure.service import ErasureService
    from services.facts import FactService
    from services.generations.exams import ExamService
    from services.generations.judgements import JudgementService
    from services.generations.reindex import ReindexService
    from services.generations.service import GenerationService
    from services.ingest import IngestService
    from services.monitoring.event_feed import EventFeed
    from services.monitoring.overview import MonitoringService
    from services.query.run_history import LineageService, RunHistory
    from services.query.runs import RunService
    from services.replay.service import ReplayService
    from services.sources.service import SourceService
    from sql.catalog.access import PgAudit
    from sql.catalog.documents import PgDocuments
    from sql.catalog.listings import PgListings
    from sql.index.entities import PgEntities


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
    builds: ReindexService
    blobs: BlobStore
    profiles: ProfileCatalog
    reload_profiles: Callable[[], Awaitable[ReloadedConfig]]
    search: Callable[[Principal, SearchRequest], Awaitable[SearchResponse]]
    query: Callable[[Principal, QueryRequest, OnProgress], Coroutine[Any, Any, QueryResponse]]
    record_feedback: Callable[[Principal, FeedbackRequest], Awaitable[FeedbackReceipt]]
    check_readiness: Callable[[], Awaitable[Sequence[DependencyStatus]]]
    get_health: Callable[[Principal], Awaitable[dict[str, Any]]]
    render_metrics: Callable[[], tuple[bytes, str]]
    get_config_schema: Callable[[], dict[str, Any]]
    list_settings: Callable[[], list[SettingValue]]
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
