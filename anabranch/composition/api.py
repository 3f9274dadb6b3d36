"""The API's services, over the real storage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace

from anabranch.background.counted_log import CountedLog
from anabranch.composition.overrides import NONE, Overrides
from anabranch.composition.questions import prepare_questions, profiles_of
from anabranch.composition.sources import sourcing
from anabranch.composition.storage import Storage, disk_reserve, prepare_storage
from anabranch.desk.answering import Answering, answering
from anabranch.desk.authentication import LocalTokenAuthenticator
from anabranch.desk.busy import Gate, GatedSearch
from anabranch.desk.comparing import Comparing
from anabranch.desk.decisions import Decisions
from anabranch.desk.erasures import LogErasures
from anabranch.desk.feed import EventFeed, status_of
from anabranch.desk.feedback import CountedFeedback, LogFeedback
from anabranch.desk.generations import GenerationDesk
from anabranch.desk.history import History, Overheard
from anabranch.desk.intake import LogIntake
from anabranch.desk.lineage import Lineage
from anabranch.desk.log_entries import Entries
from anabranch.desk.questions import Asking
from anabranch.desk.readiness import Readiness
from anabranch.desk.rebuilding import Reindexing
from anabranch.desk.replays import ReplayDesk
from anabranch.desk.usage import UsageBuffer
from anabranch.identity.api_keys import ApiKeyAuthenticator, ApiKeyService
from anabranch.identity.audit import AuditLog
from anabranch.identity.authentication import CredentialAuthenticator
from anabranch.identity.jwks import KeySet
from anabranch.identity.tokens import TokenAuthenticator
from anabranch.process.metrics import Metrics
from anabranch.secrets import link_secret
from anabranch.settings import Settings
from anabranch.settings_schema import config_schema
from anabranch.version import program_version
from api.links import Links
from api.services import Services
from api.sessions import Sessions
from engines.sentences import RuleSentences
from retrieval.lineage.walk import Walk
from retrieval.pipeline import Retriever
from schemas.generations import Generation
from schemas.ports.feed import Feed
from schemas.ports.log import EventLog
from sql.api_keys import PgApiKeys
from sql.audit import PgAudit
from sql.document_events import PgDocumentEvents
from sql.documents import PgDocuments
from sql.entities import PgEntities
from sql.feedback import PgFeedback
from sql.generations import PgGenerations
from sql.generations_told import PgGenerationsTold
from sql.jobs import PgJobs
from sql.lineage import PgLineage
from sql.log import PgLog
from sql.log_feed import PgFeed
from sql.past_texts import PgPastTexts
from sql.places import PgPlaces
from sql.pool import Pool, close_pool, open_pool
from sql.records import PgRecords
from sql.search import PgSearch
from streams.codec import DEFAULT_TENANT, Codec
from streams.feed import OffsetFeed

OTHER_CONNECTIONS = 6
QUESTION_CONNECTIONS = 4
LOCK_WAIT_S = 10.0
"""So long a request waits for a table that somebody else has locked."""


@asynccontextmanager
async def prepare_api(settings: Settings, dsn: str, *, overrides: Overrides = NONE) -> AsyncIterator[Services]:
    """Raises GenerationMismatch where the live generation needs another model than the settings name. Until a worker has made the first
    generation, questions get a TransientError."""
    metrics = Metrics(program_version())
    overrides = replace(overrides, watch=metrics.watch)
    async with AsyncExitStack() as stack:
        storage = await stack.enter_async_context(
            prepare_storage(settings, dsn, pool_size=OTHER_CONNECTIONS, name="anabranch api", lock_wait_s=LOCK_WAIT_S, overrides=overrides)
        )
        event_log = CountedLog(storage.log, metrics.published)
        pool = await open_pool(dsn, size=settings.database.api_pool, name="anabranch questions")
        stack.push_async_callback(close_pool, pool)
        usage = await stack.enter_async_context(_usage(event_log, storage.codec, metrics, overrides))
        overheard = Overheard(usage.offer)
        gate = Gate("questions", max(1, settings.database.api_pool // QUESTION_CONNECTIONS), metrics)
        search = GatedSearch(PgSearch(pool), gate)

        def questions(live: Generation) -> AbstractAsyncContextManager[Retriever]:
            return prepare_questions(settings, storage, search, live, publish=overheard.offer, note=metrics.looked_up, overrides=overrides)

        ready = await stack.enter_async_context(answering(PgGenerations(storage.pool), questions))
        documents, records, past = PgDocuments(storage.pool), PgRecords(storage.pool), PgPastTexts(storage.pool)
        asking = Asking(ready, metrics, overrides.fresh_id)
        profiles = profiles_of(settings)
        api_keys, audit = PgApiKeys(storage.pool), AuditLog(event_log, storage.codec, overrides.clock, overrides.fresh_id)
        readiness = Readiness(settings, storage, ready)
        yield Services(
            authenticate=_authenticator(settings, api_keys),
            max_failures=settings.auth.max_failures,
            authentication_failed=metrics.authentication_failures.inc,
            max_bytes=settings.ingest.max_bytes,
            intake=LogIntake(
                event_log,
                storage.blobs,
                documents,
                PgJobs(storage.pool),
                storage.codec,
                settings.ingest.max_bytes,
                overrides.clock,
                overrides.fresh_id,
                disk_reserve(settings),
            ),
            documents=documents,
            entities=PgEntities(storage.pool),
            records=records,
            sources=sourcing(settings, storage, overrides),
            replays=ReplayDesk(storage, overrides.clock, overrides.fresh_id),
            erasures=LogErasures(storage, overrides.clock, overrides.fresh_id),
            desk=_desk(storage, event_log, ready, overrides),
            builds=Reindexing(settings, storage, Decisions(event_log, storage.codec, overrides.clock, overrides.fresh_id), overrides),
            blobs=storage.blobs,
            profiles=lambda: [profiles.get(name) for name in profiles.names],
            search=asking.search,
            query=asking.query,
            feedback=CountedFeedback(
                LogFeedback(event_log, PgFeedback(storage.pool), storage.codec, overrides.clock, overrides.fresh_id, overheard.has_answered), metrics
            ).give,
            ready=readiness.lines,
            health=readiness.health,
            metrics=metrics.exposition,
            config_schema=config_schema,
            links=Links(link_secret(settings.data_dir)),
            sessions=Sessions(settings.api.token.get_secret_value()) if settings.api.token else None,
            hosts=settings.api.own_hosts(),
            public_url=settings.api.public_url.rstrip("/"),
            history=History(records, past, PgGenerations(storage.pool), ready.asked, overheard, RuleSentences(), overrides.fresh_id),
            feed=EventFeed(
                _feed(storage.log, storage.pool),
                Entries(storage.codec, documents),
                PgGenerations(storage.pool),
                PgDocumentEvents(storage.pool),
                status_of(documents),
            ),
            lineage=Lineage(Walk(PgLineage(storage.pool), past, storage.log, storage.codec, storage.blobs), records),
            keys=ApiKeyService(api_keys, audit, overrides.clock),
            audit=audit,
            audit_events=PgAudit(storage.pool),
        )


def _authenticator(settings: Settings, keys: PgApiKeys) -> CredentialAuthenticator:
    auth = settings.auth
    tokens = TokenAuthenticator(auth, KeySet(auth.jwks_url, auth.jwks_refresh_s)) if auth.jwks_url else None
    return CredentialAuthenticator(LocalTokenAuthenticator(settings.api.token, DEFAULT_TENANT), ApiKeyAuthenticator(keys), tokens)


def _desk(storage: Storage, event_log: EventLog, ready: Answering, overrides: Overrides) -> GenerationDesk:
    pool = storage.pool
    comparing = Comparing(ready, PgGenerations(pool), PgFeedback(pool), PgPlaces(pool), PgGenerationsTold(pool), storage.blobs)
    return GenerationDesk(pool, event_log, Decisions(event_log, storage.codec, overrides.clock, overrides.fresh_id), comparing)


def _feed(log: EventLog, pool: Pool) -> Feed:
    return PgFeed(pool) if isinstance(log, PgLog) else OffsetFeed(log)


@asynccontextmanager
async def _usage(event_log: EventLog, codec: Codec, metrics: Metrics, overrides: Overrides) -> AsyncIterator[UsageBuffer]:
    usage = UsageBuffer(event_log, codec, overrides.clock, metrics.usage_lost.inc)
    sending = asyncio.create_task(usage.run())
    try:
        yield usage
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await usage.flush()
