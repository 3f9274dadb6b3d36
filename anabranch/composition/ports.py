"""What the reactions of a generation may use."""

from __future__ import annotations

from anabranch.background.erasing import LogEraser
from anabranch.background.source_hosting import Door
from anabranch.composition.engines import Engines
from anabranch.composition.overrides import Overrides
from anabranch.composition.sealing import readable
from anabranch.composition.storage import Storage
from anabranch.settings import Settings
from engines.fetch import HttpFetcher
from schemas.generations import Generation
from schemas.ports.bundle import Limits, Ports
from sql.memo import PgMemo
from sql.revisions import PgRevisions
from streams.submission import SOURCE


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
        limits=Limits(ingest.max_bytes, ingest.inline_bytes, ingest.max_pages, door.allowed),
        stamp=storage.stamp,
        source_epochs=door.epochs,
        eraser=LogEraser(storage, overrides.clock, readable(settings)),
        switches=PgRevisions(storage.pool),
    )


def door_of(settings: Settings) -> Door:
    """Our own API always may; where nobody is named, everybody may."""
    named = {source: frozenset(tenants) for source, tenants in settings.ingest.sources.items()}
    return Door(allowed={**named, SOURCE: frozenset({"default"})} if named else {})
