"""URL source: polls addresses by conditional requests (RFC 9110), so that unchanged content is not
sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from schemas.errors import AnabranchError, FatalError
from schemas.events import Content, DocumentReceived
from schemas.ports.engines import FetchedFile
from schemas.ports.sources import RevisitResult, UrlRevisitor
from schemas.sources import SequenceMark, UrlsSource
from streams.sources.concurrent_batches import run_in_batches
from streams.sources.item_state import ItemChange, ItemStates

MAX_CONCURRENT_REQUESTS = 4
POLL_INTERVAL_S = 1.0
PROBLEM_KEY = "problem"
"""Key of an address's last error; stored, because the next request may be long after a restart."""


@dataclass(slots=True)
class UrlsReader:
    """Runs until cancelled, in one process at a time.

    An address that fails keeps its document. One that answers 404 or 410 `withdraw_after_misses`
    times in a row is withdrawn.
    """

    config: UrlsSource
    item_states: ItemStates
    revisitor: UrlRevisitor
    clock: Callable[[], datetime]

    async def run(self) -> None:
        await self.item_states.load()
        # Addresses removed from the list while no reader ran.
        await self.item_states.withdraw(sorted(self.item_states.live - set(self.config.urls)))
        while True:
            await self.poll()
            await asyncio.sleep(min(POLL_INTERVAL_S, self.config.every_s))

    async def poll(self) -> None:
        """Request every address that is due, a few concurrently."""
        await run_in_batches(
            (self._revisit(url) for url in dict.fromkeys(self.config.urls) if self._is_due(url)),
            MAX_CONCURRENT_REQUESTS,
            self.item_states.publish,
        )
        items = {url: self.item_states.items.get(url, {}) for url in self.config.urls}
        problems = {url: item[PROBLEM_KEY] for url, item in items.items() if PROBLEM_KEY in item}
        await self.item_states.store_status("watching", problems)

    def _is_due(self, url: str) -> bool:
        requested_at: float = self.item_states.items.get(url, {}).get("requested_at", 0.0)
        return self.clock().timestamp() - requested_at >= self.config.every_s

    async def _revisit(self, url: str) -> ItemChange:
        item = self.item_states.items.get(url, {})
        request_fields = {"requested_at": self.clock().timestamp()}
        mark = self.item_states.compute_next_mark(url)
        try:
            revisited = await self.revisitor.revisit(
                url,
                self.item_states.raw_producer.get_staging_prefix(url, mark),
                # A withdrawn document needs its content again, which "not modified" would not
                # send.
                etag=item.get("etag") if item.get("live") else None,
                last_modified=item.get("last_modified") if item.get("live") else None,
            )
        except FatalError:
            raise
        # An unreachable address says nothing about its document: it stays, and is no miss.
        except AnabranchError as error:
            return ItemChange(
                url, item | request_fields | {PROBLEM_KEY: f"{error.code}: {error.detail}"}
            )
        return await self._build_change(
            url,
            {name: value for name, value in item.items() if name != PROBLEM_KEY},
            revisited,
            request_fields,
            mark,
        )

    async def _build_change(
        self,
        url: str,
        item: dict[str, Any],
        revisited: RevisitResult,
        request_fields: dict[str, float],
        mark: SequenceMark,
    ) -> ItemChange:
        if revisited.is_gone:
            misses = int(item.get("misses", 0)) + 1
            if item.get("live") and misses >= self.config.withdraw_after_misses:
                return ItemChange(url, request_fields | {"misses": misses}, is_withdrawal=True)
            return ItemChange(url, item | request_fields | {"misses": misses})
        item_fields = {
            **request_fields,
            # A successful answer restarts the count; errors leave it.
            "misses": 0,
            "etag": revisited.etag,
            "last_modified": revisited.last_modified,
        }
        if revisited.file is None:
            return ItemChange(url, item | item_fields)
        if item.get("live") and item.get("sha256") == revisited.file.blob.sha256:
            # No event refers to the staged bytes, so ingress would never remove them.
            await self.item_states.raw_producer.blobs.delete([revisited.file.blob.key])
            return ItemChange(url, item | item_fields)
        return ItemChange(
            url,
            item_fields | {"sha256": revisited.file.blob.sha256},
            self._build_document(url, revisited.file),
            mark,
        )

    def _build_document(self, url: str, fetched: FetchedFile) -> DocumentReceived:
        spec = self.item_states.source.spec
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
