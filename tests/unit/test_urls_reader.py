"""The URL source: a failure is reported as long as it lasts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from engines.blobs import open_blobs
from schemas.errors import EngineUnavailable
from schemas.ports.sources import RevisitResult
from schemas.sources import DeclaredSource, SourceSpec, UrlsSource
from streams.codec import Codec
from streams.sources.item_state import ItemStates
from streams.sources.raw_producer import RawProducer
from streams.sources.urls_reader import UrlsReader
from tests.fakes.event_feed import NoKnownDocuments
from tests.fakes.memory_log import MemoryLog
from tests.fakes.memory_source_store import MemorySourceStore

AWAY, THERE = "http://away.example/a", "http://there.example/b"


class FakeWeb:
    """Answers "not modified", except for unavailable URLs."""

    def __init__(self) -> None:
        self.unavailable_urls = {AWAY}

    async def revisit(
        self,
        url: str,
        key_prefix: str,
        *,
        etag: str | None = None,
        last_modified: str | None = None,
    ) -> RevisitResult:
        if url in self.unavailable_urls:
            raise EngineUnavailable("no answer", code="FETCH_FAILED")
        return RevisitResult()


class UrlsReaderHarness:
    def __init__(self) -> None:
        self.now, self.store, self.web = (
            datetime(2026, 1, 1, tzinfo=UTC),
            MemorySourceStore(),
            FakeWeb(),
        )

    async def restart_and_read_problems(self) -> dict[str, str]:
        """Return the problems that a newly started reader reports."""
        connector = UrlsSource(urls=[AWAY, THERE], every_s=3600)
        source = DeclaredSource(SourceSpec(name="site", connector=connector), 1)
        states = ItemStates(
            source,
            self.store,
            NoKnownDocuments(),
            RawProducer(source.spec, Codec(), open_blobs("memory:///"), self.clock),
            MemoryLog(self.clock),
            self.clock,
        )
        await states.load()
        await UrlsReader(connector, states, self.web, self.clock).poll()
        return dict((await self.store.fetch_notes("site"))["status"]["problems"])

    def clock(self) -> datetime:
        return self.now


async def test_url_failure_is_reported_across_restarts_until_fixed() -> None:
    harness = UrlsReaderHarness()
    assert await harness.restart_and_read_problems() == {AWAY: "FETCH_FAILED: no answer"}
    harness.web.unavailable_urls = {THERE}
    assert await harness.restart_and_read_problems() == {AWAY: "FETCH_FAILED: no answer"}, (
        "neither URL is fetched again within the hour"
    )
    harness.now += timedelta(hours=1)
    assert await harness.restart_and_read_problems() == {THERE: "FETCH_FAILED: no answer"}
    assert await harness.restart_and_read_problems() == {THERE: "FETCH_FAILED: no answer"}
