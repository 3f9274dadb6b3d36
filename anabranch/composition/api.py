"""Compose the services of the API."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

from anabranch.composition.retriever import RetrieverHooks, prepare_retriever
from anabranch.composition.sources import build_reindex_service, build_source_service
from anabranch.composition.storage import prepare_storage
from anabranch.config.engines import (
    build_disk_reserve,
    build_fetcher,
    describe_backends,
    open_graph_server,
)
from anabranch.config.index_config import list_setting_values
from anabranch.config.overrides import NO_OVERRIDES, Overrides
from anabranch.config.profiles import build_config_schema, load_all_profiles, read_profiles_again
from anabranch.config.settings import Settings
from anabranch.config.version import get_program_version
from anabranch.encryption.codec import load_link_key
from anabranch.identity.authentication import build_authenticator
from anabranch.local_models import ChatModelChoice
from api.services import Services
from api.sessions import BrowserSessions, LinkSigner
from processors import STAGES
from retrieval.runs.lineage.tracer import LineageTracer
from schemas.findings import Finding
from schemas.principals import Principal
from services.api_keys import ApiKeyService, AuditLog
from services.background_tasks import run_in_background
from services.collections import CollectionService
from services.entities import EntityService
from services.erasure.drain import DrainBarrier
from services.erasure.service import ErasureService
from services.experiments import ExperimentService
from services.facts import FactService
from services.generations.comparison import GenerationComparer
from services.generations.decisions import GenerationDecisions
from services.generations.exams import ExamService, JudgementService
from services.generations.service import GenerationService
from services.ingest import IngestService
from services.instrumentation.metrics import Metrics, NotifyingLog
from services.monitoring.event_feed import EventFeed, LogEntryBuilder
from services.monitoring.overview import MonitoringService, ReadinessService, SharedResult
from services.publishing import EventPublisher
from services.query.event_buffer import QueryEventTap, open_event_buffer
from services.query.feedback import FeedbackService
from services.query.orphaned_runs import OrphanedRunReporter, open_orphaned_run_reporter
from services.query.profile_reload import ProfileReloader
from services.query.question_vectors import QuestionVectors
from services.query.retriever_pool import open_retriever_pool
from services.query.run_history import LineageService, RecentRunLookup, RunHistory
from services.query.runs import RunService, open_run_service
from services.query.service import ConcurrencyLimiter, QueryService
from services.query.standing_questions import QuestionAsker, StandingQuestionService
from services.query.web_hooks import WebHooks
from services.replay.service import ReplayService
from services.storage import Storage
from sql.catalog.access import PgApiKeys, PgAudit
from sql.catalog.collections import PgCollections
from sql.catalog.documents import PgDocuments
from sql.catalog.exams import PgExams
from sql.catalog.facts import PgFacts
from sql.catalog.listings import PgListings
from sql.catalog.profiles import PgExperiments, PgReloadedProfiles
from sql.catalog.revisions import PgJobs, PgLineage
from sql.catalog.runs import PgFeedback, PgRecordedTexts, PgRunProcesses
from sql.database import QUESTION_SETTINGS, close_pool, open_pool
from sql.index.entities import PgEntities
from sql.index.generations import PgCalibrations, PgGenerations
from sql.index.search import PgSearch
from sql.index.snapshot import PgPassages
from sql.index.standing_questions import PgStandingQuestions
from sql.log.feed import PgFeed
from streams.offset_feed import OffsetFeed

GENERAL_POOL_SIZE = 6
# The channels of a query run at the same time, each on a connection of its own.
CONNECTIONS_PER_QUERY = 4
LOCK_TIMEOUT_S = 10.0
"""A request that waits longer for a locked table fails with code TABLES_LOCKED."""
DOCTOR_MAX_AGE_S = 5.0
"""The checks start a process and call the model servers."""


Diagnose = Callable[[], Awaitable[Sequence[Finding]]]


async def run_no_checks() -> Sequence[Finding]:
    return []


@asynccontextmanager
async def prepare_api(
    settings: Settings,
    dsn: str,
    *,
    overrides: Overrides = NO_OVERRIDES,
    diagnose: Diagnose = run_no_checks,
) -> AsyncIterator[Services]:
    """Raise GenerationMismatch if the live generation needs another model than the settings name.

    Queries raise TransientError until a worker has made the first generation.
    """
    # One function: the API is composed by hand, in the order in which its parts open and close.
    metrics = Metrics(get_program_version())
    overrides = replace(overrides, watch=metrics.watch)
    async with AsyncExitStack() as stack:
        storage = await stack.enter_async_context(
            prepare_storage(
                settings,
                dsn,
                pool_size=GENERAL_POOL_SIZE,
                name="anabranch api",
                lock_wait_s=LOCK_TIMEOUT_S,
                overrides=overrides,
            )
        )
        event_log = NotifyingLog(storage.log, metrics.count_published)
        # Its own pool, so that queries and other requests do not wait for each other's connections.
        pool = await open_pool(
            dsn,
            size=settings.database.api_pool,
            name="anabranch questions",
            settings=QUESTION_SETTINGS,
        )
        stack.push_async_callback(close_pool, pool)
        # Opened before the retrievers and closed after them: it publishes their last events.
        event_buffer = await stack.enter_async_context(
            open_event_buffer(event_log, storage.codec, overrides.clock, metrics.usage_lost.inc)
        )
        event_tap = QueryEventTap(event_buffer.offer)
        limiter = ConcurrencyLimiter(
            "questions", max(1, settings.database.api_pool // CONNECTIONS_PER_QUERY), metrics
        )
        search = PgSearch(pool)
        profile_reloader = await stack.enter_async_context(_open_profiles(settings, storage))
        profiles = profile_reloader.catalog

        chat_model = ChatModelChoice(settings, lambda: retrievers.replace_all())
        hooks = RetrieverHooks(event_tap.offer, metrics.record_cache_lookup, limiter.acquire_slot)
        retrievers = await stack.enter_async_context(
            open_retriever_pool(
                PgGenerations(storage.pool),
                lambda generation: prepare_retriever(
                    chat_model.settings,
                    storage,
                    search,
                    generation,
                    profiles,
                    hooks,
                    overrides=overrides,
                ),
            )
        )
        await stack.enter_async_context(run_in_background(chat_model.run()))
        document_stages = {
            stage.name: stage.react is not None for stage in STAGES if stage.topic.per_document
        }
        documents = PgDocuments(storage.pool, document_stages)
        records, past_texts = PgListings(storage.pool), PgRecordedTexts(storage.pool)
        recent_runs = RecentRunLookup(records, event_tap.has_answered)
        publisher = EventPublisher(event_log, storage.codec, overrides.clock, overrides.fresh_id)
        collections = CollectionService(
            PgCollections(storage.pool), publisher, profiles.get, profiles.get_chunk_sizes
        )
        experiments = ExperimentService(
            PgExperiments(storage.pool), publisher, profiles.get, collections.apply_default_profile
        )
        query_service = QueryService(
            retrievers,
            metrics,
            overrides.fresh_id,
            experiments.choose_profile,
            profiles.select,
        )
        run_service = RunService(
            query_service.query,
            experiments.choose_profile,
            profiles.select,
            records,
            event_tap.offer,
            overrides.clock,
            overrides.fresh_id,
            settings.api.max_runs,
        )
        # Closed before the event buffer, which publishes how the runs ended.
        runs = await stack.enter_async_context(_open_runs(run_service, storage, dsn))
        run_history = RunHistory(
            recent_runs,
            past_texts,
            PgGenerations(storage.pool),
            retrievers.acquire,
            storage.log,
            storage.codec,
            event_tap,
            overrides.fresh_id,
        )
        record_feed = (
            PgFeed(storage.pool) if storage.log.is_in_database else OffsetFeed(storage.log)
        )
        web_hooks = build_web_hooks(settings, storage, run_history)
        questions = PgStandingQuestions(storage.pool)
        asker = QuestionAsker(
            questions,
            publisher,
            record_feed,
            run_history,
            retrievers.acquire,
            collections.apply_default_profile,
            web_hooks,
            QuestionVectors(questions),
            event_buffer.wait_until_published,
        )
        await stack.enter_async_context(run_in_background(asker.run()))
        api_keys = PgApiKeys(storage.pool)
        audit = AuditLog(event_log, storage.codec, overrides.clock, overrides.fresh_id)
        entities = PgEntities(storage.pool)
        decisions = GenerationDecisions(
            event_log, storage.codec, overrides.clock, overrides.fresh_id
        )
        readiness = ReadinessService(
            storage,
            retrievers,
            build_disk_reserve(settings),
            settings.log_kind,
            get_program_version(),
        )
        monitoring = MonitoringService(
            storage,
            metrics,
            build_disk_reserve(settings),
            get_program_version(),
            describe_backends(settings),
            lambda: event_feed.open_streams,
            overrides.clock,
        )

        async def fetch_status(caller: Principal, document_id: UUID) -> dict[str, Any] | None:
            status = await documents.fetch_status(caller, document_id=document_id)
            await monitoring.explain_waiting(caller, *([status] if status else []))
            return status

        event_feed = EventFeed(
            record_feed,
            LogEntryBuilder(storage.codec, documents),
            PgGenerations(storage.pool),
            fetch_status,
        )
        link_key = load_link_key(settings.data_dir)
        yield Services(
            authenticate=build_authenticator(settings, api_keys),
            max_failures_per_minute=settings.auth.max_failures,
            count_failed_authentication=metrics.authentication_failures.inc,
            max_upload_bytes=settings.ingest.max_bytes,
            agent_feedback=settings.api.agent_feedback,
            ingest=IngestService(
                event_log,
                storage.blobs,
                documents,
                PgJobs(storage.pool),
                storage.codec,
                settings.ingest.max_bytes,
                overrides.clock,
                overrides.fresh_id,
                build_disk_reserve(settings),
                hmac.digest(link_key, b"private ids", "sha256"),
            ),
            documents=documents,
            entities=entities,
            entity_changes=EntityService(publisher, entities),
            graph=await stack.enter_async_context(open_graph_server(settings.graph)),
            collections=collections,
            listings=records,
            sources=build_source_service(settings, storage, publisher),
            replays=ReplayService(storage, overrides.clock, overrides.fresh_id),
            erasures=ErasureService(storage.pool, publisher),
            generations=GenerationService(
                storage.pool,
                storage.log,
                decisions,
                GenerationComparer(
                    retrievers,
                    PgGenerations(storage.pool),
                    PgFeedback(storage.pool),
                    PgPassages(storage.pool),
                    storage.blobs,
                ),
                PgCalibrations(storage.pool),
            ),
            exams=ExamService(
                retrievers,
                PgExams(storage.pool),
                PgCalibrations(storage.pool),
                PgFeedback(storage.pool),
                decisions,
                overrides.clock,
                overrides.fresh_id,
            ),
            judgements=JudgementService(
                retrievers, PgExams(storage.pool), PgFeedback(storage.pool)
            ),
            facts=FactService(publisher, PgFacts(storage.pool)),
            questions=StandingQuestionService(questions, publisher, web_hooks, profiles.get),
            experiments=experiments,
            builds=build_reindex_service(settings, storage, decisions, overrides),
            blobs=storage.blobs,
            profiles=profiles,
            reload_profiles=profile_reloader.reload,
            search=query_service.search,
            query=query_service.query,
            embed=query_service.embed,
            record_feedback=FeedbackService(
                publisher, PgFeedback(storage.pool), event_tap.has_answered, metrics.record_feedback
            ).submit,
            check_readiness=readiness.check_all,
            get_health=readiness.summarize_health,
            render_metrics=metrics.format_exposition,
            get_config_schema=build_config_schema,
            list_settings=lambda: list_setting_values(chat_model.settings),
            chat_model=chat_model,
            link_signer=LinkSigner(link_key),
            sessions=BrowserSessions(settings.api.token.get_secret_value())
            if settings.api.token
            else None,
            hostnames=settings.api.list_allowed_hosts(),
            public_url=settings.api.public_url.rstrip("/"),
            runs=runs,
            run_history=run_history,
            event_feed=event_feed,
            monitoring=monitoring,
            diagnose=SharedResult(diagnose, DOCTOR_MAX_AGE_S).get,
            lineage=LineageService(
                LineageTracer(
                    PgLineage(storage.pool), past_texts, storage.log, storage.codec, storage.blobs
                ),
                recent_runs,
            ),
            api_keys=ApiKeyService(api_keys, audit, overrides.clock),
            audit=audit,
            audit_events=PgAudit(storage.pool),
        )


def build_web_hooks(settings: Settings, storage: Storage, history: RunHistory) -> WebHooks:
    """Build the sender of web hooks, which goes where downloads of documents may."""
    signer = storage.codec.signer
    assert signer is not None, "every storage signs its events"
    return WebHooks(
        PgStandingQuestions(storage.pool),
        history,
        lambda: build_fetcher(settings.ingest, storage.blobs),
        signer,
    )


@asynccontextmanager
async def _open_profiles(settings: Settings, storage: Storage) -> AsyncIterator[ProfileReloader]:
    """Load the profiles, and follow reloads by other processes."""
    reloads = PgReloadedProfiles(storage.pool)
    # Read before the files: a reload in between is adopted, not missed.
    last_reload = await reloads.fetch_number()
    reloader = ProfileReloader(
        load_all_profiles(settings), lambda: read_profiles_again(settings), reloads, last_reload
    )
    async with run_in_background(reloader.run()):
        yield reloader


@asynccontextmanager
async def _open_runs(service: RunService, storage: Storage, dsn: str) -> AsyncIterator[RunService]:
    """Run background questions, and report those of processes that ended."""
    reporter = OrphanedRunReporter(
        service.process_id,
        PgRunProcesses(storage.pool, dsn),
        DrainBarrier(storage).wait_for_runs,
        service.publish,
        service.clock,
    )
    # This process counts as alive until its own runs have ended.
    async with open_orphaned_run_reporter(reporter), open_run_service(service):
        yield service
