"""A list of addresses: what fails is told for as long as it does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from engines.blobs import open_blobs
from schemas.errors import EngineUnavailable
from schemas.ports.sources import Revisited
from schemas.sources import DeclaredSource, SourceSpec, UrlsSource
from streams.codec import Codec
from streams.memory import MemoryLog
from streams.sources.delivery import Delivery
from streams.sources.known import KnownItems
from streams.sources.memory import MemorySourceStore
from streams.sources.urls import UrlsReader
from tests.unit.test_looking_sources import Nobody

AWAY, THERE = "http://away.example/a", "http://there.example/b"


class Web:
    """Answers that nothing has changed, but for the addresses that are away."""

    def __init__(self) -> None:
        self.away = {AWAY}

    async def revisit(self, url: str, key_prefix: str, *, etag: str | None = None, last_modified: str | None = None) -> Revisited:
        if url in self.away:
            raise EngineUnavailable("no answer", code="FETCH_FAILED")
        return Revisited()


class Asked:
    def __init__(self) -> None:
        self.now, self.store, self.web = datetime(2026, 1, 1, tzinfo=UTC), MemorySourceStore(), Web()

    async def after_a_restart(self) -> dict[str, str]:
        """What is told by a reader that has just been started."""
        takes = UrlsSource(urls=[AWAY, THERE], every_s=3600)
        source = DeclaredSource(SourceSpec(name="site", takes=takes), 1)
        known = KnownItems(
            source, self.store, Nobody(), Delivery(source.spec, Codec(), open_blobs("memory:///"), self.clock), MemoryLog(self.clock), self.clock
        )
        await known.recall()
        await UrlsReader(takes, known, self.web, self.clock).round()
        return dict((await self.store.notes("site"))["status"]["problems"])

    def clock(self) -> datetime:
        return self.now


async def test_an_address_that_failed_is_told_of_after_a_restart_also_before_it_is_asked_again() -> None:
    asked = Asked()
    assert await asked.after_a_restart() == {AWAY: "FETCH_FAILED: no answer"}
    asked.web.away = {THERE}
    assert await asked.after_a_restart() == {AWAY: "FETCH_FAILED: no answer"}, "neither is asked again within the hour"
    asked.now += timedelta(hours=1)
    assert await asked.after_a_restart() == {THERE: "FETCH_FAILED: no answer"}
    assert await asked.after_a_restart() == {THERE: "FETCH_FAILED: no answer"}
