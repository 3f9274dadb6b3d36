"""Documents: list, get, amend and withdraw; revisions, chunks and Markdown."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Response

from api.dependencies import Caller, PageCursor, PageLimit, ServicesDep
from schemas.document_states import DocumentState
from schemas.errors import NotFound, unknown_document_error
from schemas.values import Amendment

router = APIRouter(tags=["documents"])
FilterValue = Annotated[str | None, Query(min_length=1, max_length=1024)]


def unknown_document(document: UUID) -> NotFound:
    return unknown_document_error(document)


@router.get("/documents", operation_id="list_documents")
async def list_documents(
    services: ServicesDep,
    caller: Caller,
    external_id: FilterValue = None,
    collection: FilterValue = None,
    tag: FilterValue = None,
    state: DocumentState | None = None,
    after: PageCursor = None,
    limit: PageLimit = 50,
) -> dict[str, Any]:
    """List documents that match all given filters."""
    items, next_cursor = await services.documents.find_documents(
        caller,
        external_id=external_id,
        collection=collection,
        tag=tag,
        state=state,
        after=after,
        limit=limit,
    )
    return {"items": items, "next": next_cursor}


@router.get("/documents/{document}", operation_id="get_document")
async def get_document(document: UUID, services: ServicesDep, caller: Caller) -> dict[str, Any]:
    """Get a document."""
    fields = await services.documents.fetch_document(caller, document)
    if fields is None:
        raise unknown_document(document)
    return fields


@router.get("/documents/{document}/revisions", operation_id="list_revisions")
async def list_revisions(
    document: UUID,
    services: ServicesDep,
    caller: Caller,
    after: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    limit: PageLimit = 500,
) -> dict[str, Any]:
    """List revisions, the newest first. `after` is a revision number."""
    await get_document(document, services, caller)
    items, next_cursor = await services.documents.fetch_revisions(
        caller, document, after=after, limit=limit
    )
    return {"items": items, "next": next_cursor}


@router.get("/documents/{document}/chunks", operation_id="list_chunks")
async def list_chunks(
    document: UUID,
    services: ServicesDep,
    caller: Caller,
    after: Annotated[int, Query(ge=-1, le=2**31 - 1)] = -1,
    limit: PageLimit = 50,
) -> dict[str, Any]:
    """List chunks in order of the text. `after` is an ordinal."""
    await get_document(document, services, caller)
    items, next_cursor = await services.documents.fetch_chunks(
        caller, document, after=after, limit=limit
    )
    return {"items": items, "next": next_cursor}


@router.get("/documents/{document}/markdown", operation_id="get_markdown", response_class=Response)
async def get_markdown(document: UUID, services: ServicesDep, caller: Caller) -> Response:
    """Get the extracted Markdown, which spans refer to."""
    text = await services.documents.fetch_text(caller, document)
    if text is None:
        raise NotFound(
            f"Document {document} has no text yet.",
            remedy="Check its state with GET /v1/documents/{id}.",
        )
    body = (
        text.markdown
        if text.markdown is not None
        else (await services.blobs.get(text.blob_key or "")).decode()
    )
    return Response(body, media_type="text/markdown; charset=utf-8")


@router.patch("/documents/{document}", status_code=202, operation_id="amend_document")
async def amend_document(
    document: UUID, amendment: Amendment, services: ServicesDep, caller: Caller
) -> dict[str, Any]:
    """Change title, collection, tags, metadata or readers.

    Filters and lists reflect the change soon. Nothing is embedded again: search uses a new title from the
    next revision on. Null or omitted fields stay unchanged. An empty value removes the field, and a null
    value in `metadata` removes that key.
    """
    return {
        "status": "accepted",
        "document_id": document,
        "ingestion_job_id": await services.ingest.amend_document(caller, document, amendment),
    }


@router.delete("/documents/{document}", status_code=202, operation_id="delete_document")
async def delete_document(document: UUID, services: ServicesDep, caller: Caller) -> dict[str, Any]:
    """Withdraw the document; it soon disappears from all results."""
    return {
        "status": "accepted",
        "document_id": document,
        "ingestion_job_id": await services.ingest.withdraw_document(caller, document),
    }
