"""Many documents straight onto topic `raw`, as a foreign producer would put them there, and word of each from topic `outcomes`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from schemas.errors import PermanentError
from schemas.events import Content, DocumentFailed, DocumentReceived
from schemas.ids import received_id, sha256_hex
from schemas.ports.engines import Blobs
from schemas.ports.log import EventLog
from schemas.records import Record
from schemas.staging import staged_prefix
from streams.codec import Codec
from streams.submission import submission
from streams.topics import OUTCOMES

SOURCE = "anabranch/bulk"
BATCH = 200
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Text:
    id: str
    title: str | None
    text: str


@dataclass(slots=True)
class Bulk:
    """Texts become Markdown documents; their ids become external ids."""

    log: EventLog
    blobs: Blobs
    codec: Codec
    clock: Callable[[], datetime]
    inline_bytes: int
    check: Callable[[], None]
    failures: dict[str, DocumentFailed] = field(default_factory=dict)

    async def ingest(self, texts: Sequence[Text]) -> None:
        """Returns when every one has an outcome. `failures` then holds those that could not be processed, by id."""
        start = {partition: following for partition, (_, following) in (await self.log.ends(OUTCOMES)).items()}
        for number in range(0, len(texts), BATCH):
            await self.log.append([await self._record(text) for text in texts[number : number + BATCH]])
        await self._outcomes({text.id for text in texts}, start)

    async def _record(self, text: Text) -> Record:
        data = DocumentReceived(
            external_id=text.id,
            title=text.title,
            media_type="text/markdown",
            filename=f"{sha256_hex(text.id.encode())[:16]}.md",
            content=await self._content(text),
        )
        return await submission(data, text.id, source=SOURCE, time=self.clock(), codec=self.codec)

    async def _content(self, text: Text) -> Content:
        payload = text.text.encode()
        if len(payload) <= self.inline_bytes:
            return Content(text=text.text)
        key = staged_prefix("default", received_id("default", SOURCE, text.id)) + sha256_hex(payload)
        return Content(storage_key=(await self.blobs.put(key, payload, media_type="text/markdown")).key)

    async def _outcomes(self, waited: set[str], start: dict[int, int]) -> None:
        while waited:
            self.check()
            async for stored in self.log.read(OUTCOMES, start):
                start[stored.position.partition] = stored.position.offset + 1
                waited -= set(self._told(await self.codec.decode(stored)))
            await asyncio.sleep(POLL_S)

    def _told(self, fact: object) -> Iterable[str]:
        data = getattr(fact, "data", None)
        if getattr(data, "source", None) != SOURCE:
            return
        if isinstance(data, DocumentFailed) and data.event_id:
            self.failures[data.event_id] = data
        yield str(getattr(data, "event_id", ""))


def all_failed(bulk: Bulk, texts: Sequence[Text]) -> None:
    """Raises PermanentError with the first reason where nothing at all got through."""
    if texts and len(bulk.failures) == len(texts):
        first = next(iter(bulk.failures.values()))
        raise PermanentError(
            f"none of {len(texts)} documents could be processed; the first: {first.detail}", code=first.code or "FAILED", remedy=first.remedy or ""
        )
