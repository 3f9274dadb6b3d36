"""Documents from the API on their way into the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import urlsplit
from uuid import UUID

from api.services import IngestRequest, Receipt, Upcoming
from engines.disk import DiskReserve
from processors.pinning import check_storage_key
from schemas.amendments import limited_to
from schemas.errors import CredentialsInUrl, Forbidden, ForbiddenAddress, InvalidRequest, LimitExceeded, LogUnavailable, NotFound, UnreadableDocument
from schemas.events import Content, DocumentAmended, DocumentReceived, DocumentWithdrawn
from schemas.ids import document_id, received_id, sha256_hex, sha256_of_file
from schemas.ports.engines import Blobs
from schemas.ports.log import EventLog
from schemas.ports.search import Documents
from schemas.principals import Principal
from schemas.staging import staged_prefix
from schemas.urls import has_user_info
from schemas.values import Amendment, BlobRef, DocumentFields, Notice
from streams.codec import Codec
from streams.submission import SOURCE, submission

PATIENCE_S = 45.0
"""So long a request waits, once its bytes are here."""
SEND_AGAIN = "send it again, under the same Idempotency-Key if you gave one."
AMEND_AGAIN = "ask GET /v1/documents/{id} whether it was taken, and send it again if not."
WITHDRAW_AGAIN = "send it again: a document that is withdrawn already stays so."


class Jobs(Protocol):
    async def open(
        self, *, job_id: UUID, tenant: str, document_id: UUID, event_id: str, source: str, external_id: str | None, asked_by: str | None
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class LogIntake:
    """`api.services.Intake` over the log. A job's id is that of its event, so the same Idempotency-Key is the same job."""

    log: EventLog
    blobs: Blobs
    documents: Documents
    jobs: Jobs
    codec: Codec
    max_bytes: int
    clock: Callable[[], datetime]
    fresh_id: Callable[[], UUID]
    disk: DiskReserve
    patience_s: float = PATIENCE_S

    def begin(self, caller: Principal, idempotency_key: str | None) -> Upcoming:
        """A caller that is limited to readers has keys of its own: it must neither meet another's event nor learn of it."""
        key = idempotency_key if idempotency_key is None or caller.readers is None else f"{caller.id}/{idempotency_key}"
        return Upcoming(key or str(self.fresh_id()), key is not None)

    async def store(self, tenant: str, event: Upcoming, chunks: AsyncIterator[bytes], media_type: str | None) -> BlobRef:
        """Under a key that follows from event and bytes, so that the same request again is the same event; the door removes it."""
        self.disk.check()
        return await self.blobs.put_stream(_staged(tenant, event), chunks, limit=self.max_bytes, media_type=media_type)

    async def discard(self, event: Upcoming, upload: BlobRef) -> None:
        """Not where the caller chose the id: an earlier request of the same id and bytes may still need them."""
        if not event.chosen:
            await self.blobs.delete([upload.key])

    async def accept(self, caller: Principal, request: IngestRequest, upload: BlobRef | None, event: Upcoming) -> Receipt:
        if request.storage_key is not None and caller.readers is not None:
            remedy = "Send the file itself."
            raise Forbidden(
                "storage_key names what anyone in the tenant has uploaded, and you are limited to readers.", code="LIMITED_TO_READERS", remedy=remedy
            )
        if upload is None:
            self.disk.check()
        content, sha256 = await self._content(caller.tenant, request, upload, event)
        async with _bounded(self.patience_s, SEND_AGAIN):
            return await self._taken(caller, _own_name(caller, request, sha256), content, sha256, event)

    async def _taken(self, caller: Principal, request: IngestRequest, content: Content, sha256: str | None, event: Upcoming) -> Receipt:
        tenant = caller.tenant
        identity = document_id(tenant, "", request.external_id or request.source_uri or request.url or sha256 or "")
        await self._check_may_write(caller, identity, request.external_id)
        before = await self._before(caller, event, identity, sha256)
        if request.text is not None:
            await self.blobs.put(content.storage_key or "", request.text.encode())
        duplicate = sha256 is not None and await self._has(caller, identity, sha256, request)
        fields = request.model_dump(include=set(DocumentFields.model_fields)) | ({"media_type": "text/markdown"} if _nameless_text(request) else {})
        data = DocumentReceived.model_validate(fields | {"tenant": tenant, "external_id": request.external_id, "content": content, "force": request.force})
        job = await self._publish(caller, data, event.event_id, identity)
        if before and before["stages"][0]["state"] == "done" and content.storage_key and request.storage_key is None:
            # It was let in before and its bytes are pinned: nobody will come for these.
            await self.blobs.delete([content.storage_key])
        return Receipt(
            document_id=identity,
            ingestion_job_id=job,
            external_id=request.external_id,
            content_sha256=sha256,
            duplicate=duplicate,
            warnings=[Notice(code="DUPLICATE", detail="The document has these bytes and these fields already; nothing is done again.")]
            if duplicate and not request.force
            else [],
        )

    async def amend(self, caller: Principal, document_id: UUID, amendment: Amendment) -> UUID:
        async with _bounded(self.patience_s, AMEND_AGAIN):
            return await self._amended(caller, document_id, amendment)

    async def _amended(self, caller: Principal, document_id: UUID, amendment: Amendment) -> UUID:
        found = await self.documents.get(caller, document_id)
        if found is None or found.get("state") == "withdrawn":
            raise NotFound(f"no document {document_id}", remedy="GET /v1/documents lists them.")
        if not amendment.said():
            raise InvalidRequest("an amendment that says nothing", code="NOTHING_TO_AMEND", remedy="Give title, collection, tags, metadata or readers.")
        data = DocumentAmended(tenant=caller.tenant, document_id=str(document_id), **amendment.said())
        return await self._publish(caller, data, str(self.fresh_id()), document_id, found.get("external_id"))

    async def withdraw(self, caller: Principal, document_id: UUID) -> UUID:
        async with _bounded(self.patience_s, WITHDRAW_AGAIN):
            return await self._withdrawn(caller, document_id)

    async def _withdrawn(self, caller: Principal, document_id: UUID) -> UUID:
        found = await self.documents.get(caller, document_id)
        if found is None:
            raise NotFound(f"no document {document_id}", remedy="GET /v1/documents lists them.")
        data = DocumentWithdrawn(tenant=caller.tenant, document_id=str(document_id))
        return await self._publish(caller, data, str(self.fresh_id()), document_id, found.get("external_id"))

    async def _publish(
        self, caller: Principal, data: DocumentReceived | DocumentAmended | DocumentWithdrawn, event_id: str, document: UUID, external_id: str | None = None
    ) -> UUID:
        record = await submission(data, event_id, time=self.clock(), codec=self.codec, document=document)
        await self.log.append([record])
        job = received_id(data.tenant, SOURCE, event_id)
        await self.jobs.open(
            job_id=job,
            tenant=data.tenant,
            document_id=document,
            event_id=event_id,
            source=SOURCE,
            external_id=data.external_id or external_id,
            asked_by=caller.id,
        )
        return job

    async def _content(self, tenant: str, request: IngestRequest, upload: BlobRef | None, event: Upcoming) -> tuple[Content, str | None]:
        """Text is not stored yet."""
        given = [name for name in ("url", "text", "storage_key") if getattr(request, name) is not None]
        for name, url in (("url", request.url), ("source_uri", request.source_uri)):
            if url is not None and has_user_info(url):
                raise CredentialsInUrl(f"{name} holds a user name or password")
        if len(given) + (upload is not None) != 1:
            names = ", ".join(given + (["file"] if upload else [])) or "nothing"
            raise InvalidRequest(f"one document a request: a file, url, text or storage_key; got {names}", remedy="Send exactly one of them.")
        if request.url is not None:
            return Content(url=_checked_url(request.url)), None
        if request.storage_key is not None:
            return Content(storage_key=request.storage_key), await self._hash_of(tenant, request.storage_key)
        if not (upload.size if upload else request.text):
            raise UnreadableDocument("the document has 0 bytes", code="EMPTY_DOCUMENT", remedy="Send the content; to remove a document, withdraw it.")
        if upload:
            return Content(storage_key=upload.key), upload.sha256
        payload = (request.text or "").encode()
        self._check_size(len(payload))
        return Content(storage_key=_staged(tenant, event) + sha256_hex(payload)), sha256_hex(payload)

    async def _hash_of(self, tenant: str, key: str) -> str:
        check_storage_key(key, tenant)
        size = await self.blobs.size(key)
        if size is None:
            raise NotFound(f"there is no blob under storage_key {key!r}", code="NO_SUCH_BLOB", remedy="Upload the file first.")
        self._check_size(size)
        async with self.blobs.local(key) as path:
            return await asyncio.to_thread(sha256_of_file, path)

    def _check_size(self, size: int) -> None:
        if size > self.max_bytes:
            remedy = "Split it, or raise ANABRANCH_INGEST__MAX_BYTES."
            raise LimitExceeded(f"the document has {size} bytes, the limit is {self.max_bytes}", code="TOO_LARGE", remedy=remedy)

    async def _check_may_write(self, caller: Principal, document: UUID, external_id: str | None) -> None:
        """Raises InvalidRequest where the name is taken by a document that the caller may not read."""
        if caller.readers is None or await self.documents.get(caller, document) is not None:
            return
        if await self.documents.get(replace(caller, readers=None), document) is not None:
            raise InvalidRequest(f"external_id {external_id!r} cannot be used.", code="EXTERNAL_ID_TAKEN", remedy="Choose another external_id.")

    async def _has(self, caller: Principal, document: UUID, sha256: str, request: IngestRequest) -> bool:
        """Whether the document has these bytes, and what the request says of it."""
        # Readers are shown to unlimited callers only; _check_may_write has refused documents that this caller may not read.
        found = await self.documents.get(replace(caller, readers=None), document)
        if found is None or found.get("content_sha256") != sha256 or found.get("state") in ("withdrawn", "failed"):
            return False
        given = {name: getattr(request, name) for name in ("title", "language", "document_date") if getattr(request, name) is not None}
        stated = {"collection": request.collection, "tags": request.tags, "metadata": request.metadata, **given}
        shown, sent = limited_to(found.get("readers")), limited_to(request.readers)
        return shown == sent and all(found.get(name) == value for name, value in stated.items())

    async def _before(self, caller: Principal, event: Upcoming, document: UUID, sha256: str | None) -> Mapping[str, Any] | None:
        """What became of the same event when it came before. Its Idempotency-Key with another document is a mistake, told at once and not only by a
        dead letter."""
        if not event.chosen:
            return None
        before = await self.documents.status(caller, event_id=event.event_id, source=SOURCE)
        if before is not None and _differs(before, document, sha256):
            raise InvalidRequest(
                f"Idempotency-Key {event.event_id!r} came before with another document",
                code="IDEMPOTENCY_KEY_REUSED",
                remedy="Give each change a key of its own.",
            )
        return before


@asynccontextmanager
async def _bounded(seconds: float, again: str) -> AsyncIterator[None]:
    """Raises LogUnavailable where log and tables take longer; `again` tells what to do then."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        remedy = f"`anabranch doctor` says what is stuck; then {again}"
        raise LogUnavailable(f"log and tables did not take it within {seconds:g} s; they may all the same", remedy=remedy) from error


def _staged(tenant: str, event: Upcoming) -> str:
    return staged_prefix(tenant, received_id(tenant, SOURCE, event.event_id))


def _differs(before: Mapping[str, Any], document: UUID, sha256: str | None) -> bool:
    if str(before.get("document_id")) != str(document):
        return True
    return bool(sha256 and before.get("content_sha256") and before["content_sha256"] != sha256)


def _own_name(caller: Principal, request: IngestRequest, sha256: str | None) -> IngestRequest:
    """Without an external id, documents of the same bytes or address are one. Those of a caller that is limited to readers are its own: it must not learn
    whether another user's document has the same."""
    if caller.readers is None or request.external_id is not None:
        return request
    name = sha256_hex((request.source_uri or request.url or sha256 or "").encode())
    return request.model_copy(update={"external_id": f"{sha256_hex(caller.id.encode())[:16]}/{name}"})


def _nameless_text(request: IngestRequest) -> bool:
    return request.text is not None and request.filename is None and request.media_type is None


def _checked_url(url: str) -> str:
    """Only what can be told without looking the name up; the door checks the address that is connected to."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ForbiddenAddress(f"url {url!r} is no http or https address")
    return url
