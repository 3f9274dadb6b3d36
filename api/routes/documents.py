"""Documents: lists, one, its revisions, chunks and Markdown, saying something else of it, and taking it out."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Response

from api.access import After, Caller, Limit, Use
from schemas.errors import NotFound
from schemas.states import DocumentState
from schemas.values import Amendment

router = APIRouter(tags=["documents"])
Word = Annotated[str | None, Query(min_length=1, max_length=1024)]


def _unknown(document: UUID) -> NotFound:
    return NotFound(f"no document {document}", remedy="GET /v1/documents lists them.")


@router.get("/documents", operation_id="list_documents")
async def find(
    use: Use,
    caller: Caller,
    external_id: Word = None,
    collection: Word = None,
    tag: Word = None,
    state: DocumentState | None = None,
    after: After = None,
    limit: Limit = 50,
) -> dict[str, Any]:
    items, following = await use.documents.find(caller, external_id=external_id, collection=collection, tag=tag, state=state, after=after, limit=limit)
    return {"items": items, "next": following}


@router.get("/documents/{document}", operation_id="get_document")
async def get(document: UUID, use: Use, caller: Caller) -> dict[str, Any]:
    found = await use.documents.get(caller, document)
    if found is None:
        raise _unknown(document)
    return found


@router.get("/documents/{document}/revisions", operation_id="list_revisions")
async def revisions(
    document: UUID, use: Use, caller: Caller, after: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None, limit: Limit = 500
) -> dict[str, Any]:
    """The newest first; `after` is the number of a revision."""
    await get(document, use, caller)
    items, following = await use.documents.revisions(caller, document, after=after, limit=limit)
    return {"items": items, "next": following}


@router.get("/documents/{document}/chunks", operation_id="list_chunks")
async def chunks(document: UUID, use: Use, caller: Caller, after: Annotated[int, Query(ge=-1, le=2**31 - 1)] = -1, limit: Limit = 50) -> dict[str, Any]:
    """In the order of the text; `after` is an ordinal."""
    await get(document, use, caller)
    items, following = await use.documents.chunks(caller, document, after=after, limit=limit)
    return {"items": items, "next": following}


@router.get("/documents/{document}/markdown", operation_id="get_markdown", response_class=Response)
async def markdown(document: UUID, use: Use, caller: Caller) -> Response:
    """The text that spans point into."""
    text = await use.documents.text(caller, document)
    if text is None:
        raise NotFound(f"document {document} has no text", remedy="It may still be on its way: GET /v1/documents/{id} says.")
    body = text.markdown if text.markdown is not None else (await use.blobs.get(text.blob_key or "")).decode()
    return Response(body, media_type="text/markdown; charset=utf-8")


@router.patch("/documents/{document}", status_code=202, operation_id="amend_document")
async def amend(document: UUID, amendment: Amendment, use: Use, caller: Caller) -> dict[str, Any]:
    """Title, collection, tags, metadata or readers. Filters and lists know it soon; nothing is embedded again, and an amended title is searched by from the next
    revision on. A field that is null or left out stays; an empty one is taken away, and so is a key of the metadata that is null."""
    return {"status": "accepted", "document_id": document, "ingestion_job_id": await use.intake.amend(caller, document, amendment)}


@router.delete("/documents/{document}", status_code=202, operation_id="delete_document")
async def delete(document: UUID, use: Use, caller: Caller) -> dict[str, Any]:
    """It answers no question any more soon after."""
    return {"status": "accepted", "document_id": document, "ingestion_job_id": await use.intake.withdraw(caller, document)}
