"""What the reactions of a generation may use."""

from __future__ import annotations

from anabranch.background.erasing import LogEraser
from anabranch.background.source_hosting import Door
from anabranch.composition.engines import Engines
from anabranch.composition.overrides import Overrides
from anabranch.composition.sealing import readable
from anabranch.composition.storage import Storage
from anabranch.settings import IngestSettings, Settings
from engines.fetch import HttpFetcher
from schemas.generations import Generation
from schemas.ports.bundle import Limits, Ports
from sql.memo import PgMemo
from sql.owners import PgOwners
from sql.revisions import PgRevisions


def ports_of(settings: Settings, storage: Storage, generation: Generation, engines: Engines, overrides: Overrides, door: Door) -> Ports:
    ingest = settings.ingest
    fetcher = overrides.fetcher or HttpFetcher(storage.blobs, allow=frozenset(ingest.url_allow), max_bytes=ingest.max_bytes, timeout_s=ingest.fetch_timeout_s)
    return Ports(
        generation=generation,
        blobs=storage.blobs,
        memo=PgMemo(storage.pool),
        fetcher=fetcher,
        parser=engines.parser,
        chunker=engines.chunker,
        extractor=engines.extractor,
        embedder=engines.embedder,
        languages=engines.languages,
        revisions=PgRevisions(storage.pool),
        limits=limits_of(ingest),
        stamp=storage.stamp,
        source_epochs=door.epochs,
        owners=PgOwners(storage.pool),
        eraser=LogEraser(storage, overrides.clock, readable(settings), (settings.storage.url or "").startswith("s3:")),
        switches=PgRevisions(storage.pool),
    )


def limits_of(ingest: IngestSettings) -> Limits:
    """Where no source is named, any may write for the default tenant."""
    sources, takeover, topics = ({name: frozenset(values) for name, values in given.items()} for given in (ingest.sources, ingest.takeover, ingest.topics))
    given = {"sources": sources} if sources else {}
    return Limits(ingest.max_bytes, ingest.inline_bytes, ingest.max_pages, takeover=takeover, topics=topics, **given)
