"""Ingest documents from the API: validate, stage, publish."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from engines.disk import DiskReserve
from processors.admission import (
    check_size,
    check_storage_key,
    check_url_credentials,
    missing_blob_error,
)
from schemas.amendments import normalize_readers
from schemas.errors import (
    Forbidden,
    ForbiddenAddress,
    InvalidRequest,
    LogUnavailable,
    PermanentError,
    unknown_document_error,
)
from schemas.events import Content, DocumentAmended, DocumentReceived, DocumentWithdrawn
from schemas.ids import (
    compute_file_sha256,
    make_document_id,
    make_received_id,
    sha256_hex,
    upload_staging_prefix,
)
from schemas.ingest import IngestionJob, IngestReceipt, IngestRequest
from schemas.ports.engines import BlobStore
from schemas.ports.log import RecordAppender
from schemas.principals import Principal
from schemas.values import Amendment, BlobRef, DocumentFields, Notice
from sql.catalog.documents import PgDocuments
from sql.catalog.revisions import PgJobs
from streams.codec import Codec
from streams.publisher import API_SOURCE, build_raw_record

RequestData = DocumentReceived | DocumentAmended | DocumentWithdrawn
REQUEST_TIMEOUT_S = 45.0
"""Limit of one request after its upload has arrived."""
RETRY_INGEST = "Retry, with the same Idempotency-Key if you sent one."
RETRY_AMEND = "Check GET /v1/documents/{id}, and retry if the change is missing."
RETRY_WITHDRAW = "Retry: withdrawing twice does no harm."
_DUPLICATE = Notice(
    code="DUPLICATE",
    detail="The document already has these bytes and fields; nothing is processed.",
)


@dataclass(frozen=True, slots=True)
class IngestService:
    """Publish submissions, amendments and withdrawals.

    A job has the id of its event: the same Idempotency-Key, the same job.
    """

    log: RecordAppender
    blobs: BlobStore
    documents: PgDocuments
    jobs: PgJobs
    codec: Codec
    max_bytes: int
    clock: Callable[[], datetime]
    fresh_id: Callable[[], UUID]
    disk: DiskReserve
    private_id_key: bytes
    """Secret from which ids of documents without an external id are derived."""
    timeout_s: float = REQUEST_TIMEOUT_S

    @asynccontextmanager
    async def open_submission(
        self, caller: Principal, idempotency_key: str | None
    ) -> AsyncIterator[Submission]:
        """Begin a request to ingest a document.

        If the block fails before the event may be in the log, its uploads are deleted, unless the
        caller chose the event id: an earlier request with that id may still need them. Keys of a
        caller that is limited to readers are prefixed with its id, so that it cannot probe others'
        events.
        """
        key = (
            idempotency_key
            if idempotency_key is None or caller.readers is None
            else f"{caller.id}/{idempotency_key}"
        )
        submission = Submission(caller, key or str(self.fresh_id()), key is not None)
        try:
            yield submission
        except Exception as error:
            is_written = submission.is_publishing and not isinstance(error, PermanentError)
            if not is_written and not submission.has_idempotency_key:
                await self.blobs.delete([upload.key for upload in submission.uploads])
            raise

    async def stage_upload(
        self, submission: Submission, chunks: AsyncIterator[bytes], media_type: str | None
    ) -> BlobRef:
        """Store the bytes under a key derived from event and content.

        A retried request is thus the same event. Stage `receive` removes the upload.
        """
        self.disk.check()
        upload = await self.blobs.put_stream(
            submission.staging_prefix, chunks, limit=self.max_bytes, media_type=media_type
        )
        submission.uploads.append(upload)
        return upload

    async def submit_document(
        self, submission: Submission, request: IngestRequest, upload: BlobRef | None
    ) -> IngestReceipt:
        """Publish the event and wait for the log.

        Raises InvalidRequest, Forbidden, LogUnavailable.
        """
        caller = submission.caller
        if request.storage_key is not None and caller.readers is not None:
            raise Forbidden(
                "Callers limited to readers may not use storage_key: it can name uploads of "
                "other users.",
                code="LIMITED_TO_READERS",
                remedy="Upload the file.",
            )
        # An upload was checked when it was staged.
        if upload is None:
            self.disk.check()
        content, sha256 = await self._resolve_content(submission, request, upload)
        if caller.readers is not None and request.external_id is None:
            # Without an id of its own, equal bytes or URLs are one document, and the caller could
            # learn that another user has it.
            name = request.source_uri or request.url or sha256 or ""
            private_id = await self._make_private_id(caller, name)
            request = request.model_copy(update={"external_id": private_id})
        async with _limit_time(self.timeout_s, RETRY_INGEST):
            return await self._accept_document(submission, request, content, sha256)

    async def _make_private_id(self, caller: Principal, name: str) -> str:
        """Return an id that no other caller can compute: with it, it could ask for the document."""
        hashed_name = sha256_hex(name.encode())
        # Ids of earlier versions, which hashed the public id of the caller, keep their documents.
        earlier_id = f"{sha256_hex(caller.id.encode())[:16]}/{hashed_name}"
        if await self.jobs.has_sent(caller, make_document_id(caller.tenant, "", earlier_id)):
            return earlier_id
        digest = hmac.digest(self.private_id_key, f"{caller.id}\n{name}".encode(), "sha256")
        return f"private/{digest.hex()}"

    async def _accept_document(
        self, submission: Submission, request: IngestRequest, content: Content, sha256: str | None
    ) -> IngestReceipt:
        caller = submission.caller
        # The id that stage `receive` will derive, so that the answer can name it before admission.
        new_document_id = make_document_id(
            caller.tenant,
            "",
            request.external_id or request.source_uri or request.url or sha256 or "",
        )
        data = _build_received_event(caller, request, content)
        async with self._order_requests(
            caller, new_document_id, normalize_readers(request.readers)
        ):
            if await self.jobs.fetch_access(caller, new_document_id) == "hidden":
                raise InvalidRequest(
                    f"external_id {request.external_id!r} cannot be used.",
                    code="EXTERNAL_ID_TAKEN",
                    remedy="Choose another external_id.",
                )
            earlier_status = await self._fetch_earlier_status(submission, new_document_id, sha256)
            is_duplicate = sha256 is not None and await self._is_duplicate(
                caller, new_document_id, sha256, request
            )
            ingestion_job = self._make_job(
                caller, data, submission.event_id, new_document_id, request.external_id
            )
            await self._claim(ingestion_job, data, submission.has_idempotency_key)
            # After the checks, so that a refused request leaves no blob.
            if request.text is not None:
                await self.blobs.put(content.storage_key or "", request.text.encode())
            submission.is_publishing = True
            job = await self._publish(ingestion_job, data)
        if (
            earlier_status
            and earlier_status["stages"][0]["state"] == "done"
            and content.storage_key
            and request.storage_key is None
        ):
            # The event was admitted before and its bytes are pinned: stage `receive` will not fetch
            # this upload.
            await self.blobs.delete([content.storage_key])
        return IngestReceipt(
            document_id=new_document_id,
            ingestion_job_id=job,
            external_id=request.external_id,
            content_sha256=sha256,
            duplicate=is_duplicate,
            warnings=[_DUPLICATE] if is_duplicate and not request.force else [],
        )

    async def amend_document(
        self, caller: Principal, document_id: UUID, amendment: Amendment
    ) -> UUID:
        """Return the ingestion job.

        Raises NotFound (also for a withdrawn document), InvalidRequest for an empty amendment,
        LogUnavailable.
        """
        readers = normalize_readers(amendment.readers)
        async with (
            _limit_time(self.timeout_s, RETRY_AMEND),
            self._order_requests(caller, document_id, readers),
        ):
            document = await self._require_changeable(caller, document_id)
            if document.get("state") == "withdrawn":
                raise unknown_document_error(document_id)
            if not amendment.stated_fields():
                raise InvalidRequest(
                    "The amendment has no fields.",
                    code="NOTHING_TO_AMEND",
                    remedy="Set title, collection, tags, metadata or readers.",
                )
            data = DocumentAmended(
                tenant=caller.tenant,
                document_id=str(document_id),
                limited_to=_list_readers(caller),
                **amendment.stated_fields(),
            )
            return await self._publish_change(caller, document_id, document, data)

    async def withdraw_document(self, caller: Principal, document_id: UUID) -> UUID:
        """Return the ingestion job. Raises NotFound, LogUnavailable."""
        async with (
            _limit_time(self.timeout_s, RETRY_WITHDRAW),
            self._order_requests(caller, document_id, None),
        ):
            document = await self._require_changeable(caller, document_id)
            data = DocumentWithdrawn(
                tenant=caller.tenant, document_id=str(document_id), limited_to=_list_readers(caller)
            )
            return await self._publish_change(caller, document_id, document, data)

    async def _require_changeable(self, caller: Principal, document_id: UUID) -> Mapping[str, Any]:
        """Return the document. Raises NotFound unless the caller may change it."""
        if await self.jobs.fetch_access(caller, document_id) == "granted":
            # Without the caller's limits: while older readers hold for the visible revision, its
            # latest one may be changed already.
            document = await self.documents.fetch_document(
                replace(caller, readers=None), document_id
            )
            if document is not None:
                return document
        raise unknown_document_error(document_id)

    async def _publish_change(
        self,
        caller: Principal,
        document_id: UUID,
        document: Mapping[str, Any],
        data: DocumentAmended | DocumentWithdrawn,
    ) -> UUID:
        job = self._make_job(
            caller, data, str(self.fresh_id()), document_id, document.get("external_id")
        )
        await self._claim(job, data, has_idempotency_key=False)
        return await self._publish(job, data)

    def _order_requests(
        self, caller: Principal, document_id: UUID, readers: tuple[str, ...] | None
    ) -> AbstractAsyncContextManager[object]:
        """Keep a limited caller's check and event together, and others' new readers out of it."""
        if caller.readers is None and readers is None:
            return nullcontext()
        return self.jobs.lock(f"requests that change {document_id}")

    async def _claim(self, job: IngestionJob, data: RequestData, has_idempotency_key: bool) -> None:
        """Claim the job of a request that others have to know before its event is processed.

        Raises InvalidRequest if another request has used its Idempotency-Key.
        """
        readers = None if isinstance(data, DocumentWithdrawn) else normalize_readers(data.readers)
        if readers is None and not has_idempotency_key:
            return
        # Without the caller, whose readers may change between a request and its repetition.
        request = data.model_dump_json(exclude={"limited_to"})
        request_sha256 = sha256_hex(request.encode())
        claimed_sha256 = await self.jobs.claim(job, request_sha256, readers)
        if claimed_sha256 not in (None, request_sha256):
            raise _reused_key_error(job.event_id)

    @staticmethod
    def _make_job(
        caller: Principal,
        data: RequestData,
        event_id: str,
        document_id: UUID,
        external_id: str | None,
    ) -> IngestionJob:
        return IngestionJob(
            job_id=make_received_id(data.tenant, API_SOURCE, event_id),
            tenant=data.tenant,
            document_id=document_id,
            event_id=event_id,
            source=API_SOURCE,
            external_id=external_id,
            requested_by=caller.id,
        )

    async def _publish(self, job: IngestionJob, data: RequestData) -> UUID:
        record = await build_raw_record(
            data, job.event_id, time=self.clock(), codec=self.codec, document_id=job.document_id
        )
        await self.log.append([record])
        # After the event: a job without one would stay pending forever.
        await self.jobs.open(job)
        return job.job_id

    async def _resolve_content(
        self, submission: Submission, request: IngestRequest, upload: BlobRef | None
    ) -> tuple[Content, str | None]:
        """Return the content and its SHA-256 (None for a URL). Inline text is stored later."""
        given_fields = [
            name for name in ("url", "text", "storage_key") if getattr(request, name) is not None
        ]
        check_url_credentials("url", request.url)
        check_url_credentials("source_uri", request.source_uri)
        if len(given_fields) + (upload is not None) != 1:
            names = ", ".join(given_fields + (["file"] if upload else [])) or "nothing"
            raise InvalidRequest(
                f"A request needs exactly one of file, url, text and storage_key; got {names}.",
                remedy="Send one of them.",
            )
        if request.url is not None:
            parts = urlsplit(request.url)
            # No name lookup: stage `receive` checks the address that it connects to.
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ForbiddenAddress(f"url {request.url!r} is no http or https address")
            return Content(url=request.url), None
        if request.storage_key is not None:
            return Content(storage_key=request.storage_key), await self._hash_stored_blob(
                submission.caller.tenant, request.storage_key
            )
        if upload:
            check_size(upload.size, self.max_bytes)
            return Content(storage_key=upload.key), upload.sha256
        payload = (request.text or "").encode()
        check_size(len(payload), self.max_bytes)
        sha256 = sha256_hex(payload)
        return Content(storage_key=submission.staging_prefix + sha256), sha256

    async def _hash_stored_blob(self, tenant: str, key: str) -> str:
        check_storage_key(key, tenant)
        size = await self.blobs.get_size(key)
        if size is None:
            raise missing_blob_error(key)
        check_size(size, self.max_bytes)
        async with self.blobs.open_local(key) as path:
            return await compute_file_sha256(path)

    async def _is_duplicate(
        self, caller: Principal, document: UUID, sha256: str, request: IngestRequest
    ) -> bool:
        """Return whether the document already has these bytes and these fields."""
        # First, because most documents are new and fetching one costs two large queries.
        if not await self.documents.has_content(caller.tenant, document, sha256):
            return False
        # Only unlimited callers see readers; documents that this caller may not read are refused.
        current = await self.documents.fetch_document(replace(caller, readers=None), document)
        if (
            current is None
            or current.get("content_sha256") != sha256
            or current.get("state") in ("withdrawn", "failed")
        ):
            return False
        names = ["collection", "tags", "metadata"] + [
            name
            for name in ("title", "language", "document_date")
            if getattr(request, name) is not None
        ]
        current_readers = normalize_readers(current.get("readers"))
        return current_readers == normalize_readers(request.readers) and all(
            current.get(name) == getattr(request, name) for name in names
        )

    async def _fetch_earlier_status(
        self, submission: Submission, document: UUID, sha256: str | None
    ) -> Mapping[str, Any] | None:
        """Return the status of the same event, if it was sent before.

        Raises InvalidRequest if its key belongs to another document: without this check only a dead
        letter would report it.
        """
        if not submission.has_idempotency_key:
            return None
        earlier_status = await self.documents.fetch_status(
            submission.caller, event_id=submission.event_id, source=API_SOURCE
        )
        if earlier_status is None:
            return None
        earlier_sha256 = earlier_status.get("content_sha256")
        # Unknown while an equal request is between its claim and its job; the claim compares both.
        earlier_document = earlier_status.get("document_id") or document
        if str(earlier_document) != str(document) or (
            sha256 and earlier_sha256 and earlier_sha256 != sha256
        ):
            raise _reused_key_error(submission.event_id)
        return earlier_status


@dataclass(slots=True)
class Submission:
    """A request to ingest a document, with what it has stored so far.

    The event's id comes first, because uploads are staged under it. With an Idempotency-Key as its
    id, the event may be in the log already.
    """

    caller: Principal
    event_id: str
    has_idempotency_key: bool
    uploads: list[BlobRef] = field(default_factory=list)
    is_publishing: bool = False

    @property
    def staging_prefix(self) -> str:
        tenant = self.caller.tenant
        return upload_staging_prefix(tenant, make_received_id(tenant, API_SOURCE, self.event_id))


def _build_received_event(
    caller: Principal, request: IngestRequest, content: Content
) -> DocumentReceived:
    fields = request.model_dump(include=set(DocumentFields.model_fields))
    if request.text is not None and request.filename is None and request.media_type is None:
        fields["media_type"] = "text/markdown"
    return DocumentReceived.model_validate(
        fields
        | {
            "tenant": caller.tenant,
            "external_id": request.external_id,
            "content": content,
            "force": request.force,
            "limited_to": _list_readers(caller),
        }
    )


def _list_readers(caller: Principal) -> list[str] | None:
    return None if caller.readers is None else list(caller.readers)


def _reused_key_error(event_id: str) -> InvalidRequest:
    return InvalidRequest(
        f"Idempotency-Key {event_id!r} was used for another document.",
        code="IDEMPOTENCY_KEY_REUSED",
        remedy="Use a new key for each change.",
    )


@asynccontextmanager
async def _limit_time(timeout_s: float, retry_hint: str) -> AsyncIterator[None]:
    """Raise LogUnavailable with the retry hint after the timeout."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as error:
        raise LogUnavailable(
            f"Timed out after {timeout_s:g} s. The event may still have been written.",
            remedy=f"`anabranch doctor` says what is stuck; then {retry_hint}",
        ) from error
