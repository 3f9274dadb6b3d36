"""Compose the ports that the stages of a generation use."""

from __future__ import annotations

from anabranch.config.overrides import Overrides
from anabranch.config.settings import IngestSettings, Settings
from anabranch.encryption.codec import build_readable_check
from engines.http_fetcher import HttpFetcher
from schemas.generations import Generation
from schemas.ports.engines import BlobStore
from schemas.ports.stage_ports import IngressLimits, StagePorts
from services.engines import Engines
from services.erasure.eraser import DocumentEraser
from services.sources.supervisor import SourceEpochs
from services.storage import Storage
from sql.engine_results import PgEngineResultCache
from sql.revisions import PgDocumentOwners, PgRevisions


def build_ports(
    settings: Settings,
    storage: Storage,
    generation: Generation,
    engines: Engines,
    overrides: Overrides,
    source_epochs: SourceEpochs,
) -> StagePorts:
    ingest = settings.ingest
    return StagePorts(
        generation=generation,
        blobs=storage.blobs,
        memo=PgEngineResultCache(storage.pool),
        fetcher=overrides.fetcher or build_fetcher(ingest, storage.blobs),
        parser=engines.parser,
        chunker=engines.chunker,
        extractor=engines.extractor,
        embedder=engines.embedder,
        language_detector=engines.languages,
        latest_revisions=PgRevisions(storage.pool),
        limits=build_limits(ingest),
        assign_order=storage.stamp,
        source_epochs=source_epochs.epochs,
        owners=PgDocumentOwners(storage.pool),
        eraser=DocumentEraser(
            storage,
            overrides.clock,
            build_readable_check(settings),
            (settings.storage.url or "").startswith("s3:"),
        ),
        generation_switches=PgRevisions(storage.pool),
    )


def build_fetcher(ingest: IngestSettings, blobs: BlobStore) -> HttpFetcher:
    return HttpFetcher(
        blobs,
        allowed_hosts=frozenset(ingest.url_allow),
        max_bytes=ingest.max_bytes,
        timeout_s=ingest.fetch_timeout_s,
    )


def build_limits(ingest: IngestSettings) -> IngressLimits:
    """Build the limits. Without `ingest.sources`, every source may write for the default tenant."""
    sources, takeover, topics = (
        {name: frozenset(values) for name, values in setting.items()}
        for setting in (ingest.sources, ingest.takeover, ingest.topics)
    )
    optional_limits = {"tenants_by_source": sources} if sources else {}
    return IngressLimits(
        ingest.max_bytes,
        ingest.inline_bytes,
        ingest.max_pages,
        takeover_by_source=takeover,
        sources_by_topic=topics,
        **optional_limits,
    )
