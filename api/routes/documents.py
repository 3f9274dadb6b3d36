"""Documents: list, get, amend and withdraw; revisions, chunks and Markdown."""

from __future__ import annotations

from datetime import date
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Response
from pydantic import Field

from api.operations import OperationRoute, operation
from api.services import Caller, PageCursor, PageLimit, PageSort, RevisionNumber, ServicesDep
from schemas.errors import NotFound, unknown_document_error
from schemas.ingest import DocumentState
from schemas.ports.engines import load_markdown
from schemas.responses import (
    AcceptedChange,
    Document,
    DocumentStatus,
    JsonObject,
    NumberedPage,
    Page,
    ResponseModel,
    Time,
)
from schemas.values import Amendment, Span

router = APIRouter(route_class=OperationRoute, tags=["documents"])
FilterValue = Annotated[str | None, Query(min_length=1, max_length=1024)]
MARKDOWN_RESPONSE: dict[int | str, JsonObject] = {
    200: {"content": {"text/markdown": {"schema": {"type": "string"}}}}
}


class Revision(ResponseModel):
    revision: int
    state: str
    title: str | None
    filename: str | None
    media_type: str | None
    content_sha256: str | None
    event_id: str | None = Field(description="`ce_id` of the event that it came from.")
    source: str | None = Field(description="`ce_source` of that event.")
    received_at: Time | None
    ingestion_job_id: UUID
    visible: bool = Field(description="True for the revision that queries see.")
    bytes: int | None
    characters: int | None
    pages: int | None


class Chunk(ResponseModel):
    chunk_id: UUID
    parent_id: UUID | None = Field(description="The passage that queries return for it.")
    ordinal: int
    kind: str
    text: str
    section: str | None
    pages: list[int] | None
    spans: list[Span]
    char_start: int
    char_end: int
    tokens: int
    language: str | None


class DocumentMention(ResponseModel):
    """A mention of an entity."""

    chunk_id: UUID
    name: str = Field(description="As it is written there.")
    char_start: int
    char_end: int


class DocumentEntity(ResponseModel):
    """An entity that the visible revision of a document mentions."""

    id: UUID
    type: str
    name: str
    mentions: int = Field(description="Mentions in this document.")
    occurrences: list[DocumentMention] = Field(description="The first 20 mentions.")


async def require_document(document: UUID, services: ServicesDep, caller: Caller) -> UUID:
    """Return the id. Raises NotFound, so that lists of an unknown document are not empty pages."""
    if await services.documents.fetch_document(caller, document) is None:
        raise unknown_document_error(document)
    return document


KnownDocument = Annotated[UUID, Depends(require_document)]


@router.get("/documents", operation_id="list_documents", response_model_exclude_unset=True)
@operation("reader")
async def list_documents(
    services: ServicesDep,
    caller: Caller,
    external_id: FilterValue = None,
    collection: FilterValue = None,
    tag: FilterValue = None,
    state: DocumentState | None = None,
    text: Annotated[
        str | None,
        Query(min_length=1, max_length=1024, description="Part of the title or file name."),
    ] = None,
    date_from: Annotated[
        date | None,
        Query(description="Earliest date of the document, or of its arrival if it has none."),
    ] = None,
    date_to: Annotated[date | None, Query(description="Latest such date.")] = None,
    name: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=1024,
            description="Whole external id, title or file name, or the first digits of the id, at "
            "least 4.",
        ),
    ] = None,
    sort: PageSort = None,
    after: PageCursor = None,
    limit: PageLimit = 50,
) -> Page[Document]:
    """List documents that match all given filters."""
    page = await services.documents.find_documents(
        caller,
        external_id=external_id,
        collection=collection,
        tag=tag,
        state=state,
        text=text,
        date_from=date_from,
        date_to=date_to,
        name=name,
        sort=sort,
        after=after,
        limit=limit,
    )
    await services.monitoring.explain_waiting(caller, *page[0])
    return Page[Document].build(*page)


@router.get("/documents/{document}", operation_id="get_document", response_model_exclude_unset=True)
@operation("reader", problems="404 NOT_FOUND")
async def get_document(document: UUID, services: ServicesDep, caller: Caller) -> DocumentStatus:
    """Get a document."""
    fields = await services.documents.fetch_document(caller, document)
    if fields is None:
        raise unknown_document_error(document)
    await services.monitoring.explain_waiting(caller, fields)
    return DocumentStatus.model_validate(fields)


@router.get(
    "/documents/{document}/revisions",
    operation_id="list_revisions",
    response_model_exclude_unset=True,
)
@operation("reader", problems="404 NOT_FOUND")
async def list_revisions(
    document: KnownDocument,
    services: ServicesDep,
    caller: Caller,
    after: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    limit: PageLimit = 500,
) -> NumberedPage[Revision]:
    """List revisions, the newest first. `after` is a revision number."""
    page = await services.documents.fetch_revisions(caller, document, after=after, limit=limit)
    return NumberedPage[Revision].build(*page)


@router.get(
    "/documents/{document}/chunks", operation_id="list_chunks", response_model_exclude_unset=True
)
@operation("reader", problems="404 NOT_FOUND")
async def list_chunks(
    document: KnownDocument,
    services: ServicesDep,
    caller: Caller,
    after: Annotated[int, Query(ge=-1, le=2**31 - 1)] = -1,
    limit: PageLimit = 50,
) -> NumberedPage[Chunk]:
    """List chunks in order of the text. `after` is an ordinal."""
    page = await services.documents.fetch_chunks(caller, document, after=after, limit=limit)
    return NumberedPage[Chunk].build(*page)


@router.get("/documents/{document}/entities", operation_id="list_document_entities")
@operation("reader", problems="404 NOT_FOUND")
async def list_document_entities(
    document: KnownDocument,
    services: ServicesDep,
    caller: Caller,
    after: PageCursor = None,
    limit: PageLimit = 50,
) -> Page[DocumentEntity]:
    """List the entities that the visible revision mentions, the most frequent first."""
    page = await services.documents.fetch_entities(caller, document, after=after, limit=limit)
    return Page[DocumentEntity].build(*page)


@router.get(
    "/documents/{document}/markdown",
    operation_id="get_markdown",
    response_class=Response,
    responses=MARKDOWN_RESPONSE,
)
@operation("reader", problems="404 NOT_FOUND")
async def get_markdown(
    document: UUID, services: ServicesDep, caller: Caller, revision: RevisionNumber = None
) -> Response:
    """Get the extracted Markdown, which spans refer to.

    With `revision` of that one; the text of a superseded revision is read from the log.
    """
    text = await services.documents.fetch_text(caller, document, revision)
    if text is not None:
        # Long texts are stored as blobs.
        body = await load_markdown(text.markdown, text.blob_key, services.blobs)
    elif revision is not None:
        body = await services.lineage.tracer.read_text(caller, document, revision)
    else:
        raise NotFound(
            f"Document {document} has no text yet.",
            remedy="Check its state with GET /v1/documents/{id}.",
        )
    return Response(body, media_type="text/markdown; charset=utf-8")


@router.patch("/documents/{document}", status_code=202, operation_id="amend_document")
@operation("writer", problems="404 NOT_FOUND 422 NOTHING_TO_AMEND")
async def amend_document(
    document: UUID, amendment: Amendment, services: ServicesDep, caller: Caller
) -> AcceptedChange:
    """Change title, collection, tags, metadata or readers.

    Filters and lists reflect the change soon. Nothing is embedded again: search uses a new title
    from the next revision on. Null or omitted fields stay unchanged. An empty value removes the
    field, and a null value in `metadata` removes that key.
    """
    job = await services.ingest.amend_document(caller, document, amendment)
    return AcceptedChange(document_id=document, ingestion_job_id=job)


@router.delete("/documents/{document}", status_code=202, operation_id="delete_document")
@operation("writer", problems="404 NOT_FOUND")
async def delete_document(document: UUID, services: ServicesDep, caller: Caller) -> AcceptedChange:
    """Withdraw the document; it soon disappears from all results."""
    job = await services.ingest.withdraw_document(caller, document)
    return AcceptedChange(document_id=document, ingestion_job_id=job)
