"""A list of addresses that are asked again and again, by conditional requests: what has not changed is not even sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from schemas.errors import AnabranchError, FatalError
from schemas.events import Content, DocumentReceived
from schemas.ports.engines import Fetched
from schemas.ports.sources import Revisited, Revisitor
from schemas.sources import Mark, UrlsSource
from streams.sources.known import KnownItems

AT_ONCE = 4
ROUND_S = 1.0
PROBLEM = "problem"
"""What an address failed with last, remembered with it: it may be asked again only after a long while."""


@dataclass(slots=True)
class UrlsReader:
    """Runs until cancelled. For one process at a time. An address that fails keeps its document; one that is gone loses it after so many answers in a row."""

    takes: UrlsSource
    known: KnownItems
    web: Revisitor
    clock: Callable[[], datetime]

    async def run(self) -> None:
        await self.known.recall()
        for name in sorted(self.known.live() - set(self.takes.urls)):
            await self.known.withdrawn(name)
        while True:
            await self.round()
            await asyncio.sleep(min(ROUND_S, self.takes.every_s))

    async def round(self) -> None:
        """Every address whose time has come, a few at once."""
        limit = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for url in dict.fromkeys(self.takes.urls):
                if self._is_due(url):
                    group.create_task(self._ask(url, limit))
        await self.known.status("watching", self._problems())

    def _problems(self) -> dict[str, str]:
        items = {url: self.known.items.get(url, {}) for url in self.takes.urls}
        return {url: item[PROBLEM] for url, item in items.items() if PROBLEM in item}

    def _is_due(self, url: str) -> bool:
        asked = self.known.items.get(url, {}).get("asked_at", 0.0)
        return bool(self.clock().timestamp() - asked >= self.takes.every_s)

    async def _ask(self, url: str, limit: asyncio.Semaphore) -> None:
        item = self.known.items.get(url, {})
        async with limit:
            asked, mark = {"asked_at": self.clock().timestamp()}, self.known.next_mark(url)
            try:
                found = await self.web.revisit(
                    url,
                    self.known.delivery.staging(url, mark),
                    etag=item.get("etag") if item.get("live") else None,
                    last_modified=item.get("last_modified") if item.get("live") else None,
                )
            except FatalError:
                raise
            except AnabranchError as error:
                await self.known.remember(url, item | asked | {PROBLEM: f"{error.code}: {error.detail}"})
                return
        await self._learn(url, {name: value for name, value in item.items() if name != PROBLEM}, found, asked, mark)

    async def _learn(self, url: str, item: dict[str, Any], found: Revisited, asked: dict[str, float], mark: Mark) -> None:
        if found.gone:
            await self._missed(url, item, asked)
            return
        note = {**asked, "misses": 0, "etag": found.etag, "last_modified": found.last_modified}
        if found.fetched is None:
            await self.known.remember(url, item | note)
            return
        if item.get("live") and item.get("sha256") == found.fetched.blob.sha256:
            await self.known.delivery.blobs.delete([found.fetched.blob.key])
            await self.known.remember(url, item | note)
            return
        await self.known.received(self._document(url, found.fetched), mark, note | {"sha256": found.fetched.blob.sha256})

    async def _missed(self, url: str, item: dict[str, Any], asked: dict[str, float]) -> None:
        misses = int(item.get("misses", 0)) + 1
        await self.known.remember(url, item | asked | {"misses": misses})
        if item.get("live") and misses >= self.takes.gone_after:
            await self.known.withdrawn(url)
            await self.known.remember(url, asked | {"misses": misses})

    def _document(self, url: str, fetched: Fetched) -> DocumentReceived:
        spec = self.known.source.spec
        return DocumentReceived(
            tenant=spec.tenant,
            external_id=url,
            content=Content(storage_key=fetched.blob.key),
            filename=fetched.filename,
            media_type=fetched.media_type,
            source_uri=url,
            collection=spec.collection,
            tags=spec.tags,
        )
