"""Collections: list and get, configure, delete."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Path
from pydantic import Field

from api.operations import OperationRoute, operation
from api.services import Caller, ServicesDep, WholeTenant
from schemas.generations import ChunkSizes, EntitySchema
from schemas.models import Request
from schemas.questions import ProfileName
from schemas.responses import Page, ResponseModel, Time

router = APIRouter(route_class=OperationRoute, prefix="/collections", tags=["collections"])
# A name may contain slashes.
NAME_PATH = "/{collection:path}"
CollectionName = Annotated[
    str, Path(min_length=1, max_length=255, description="Name of the collection.")
]


class CollectionDeletion(ResponseModel):
    deletion_id: UUID
    state: Literal["running", "done"]
    requested_at: Time
    completed_at: Time | None


class DocumentCollection(ResponseModel):
    name: str | None = Field(description="Null for the documents without a collection.")
    documents: int = Field(description="Searchable documents.")
    chunks: int
    languages: list[str]
    default_profile: str | None
    """Workflow profile of questions that name the collection and no profile."""
    chunking: str | None
    """Chunking profile that `chunk` was read from."""
    chunk: ChunkSizes | None
    """Chunk sizes for its documents. Null: those of the generation."""
    extract: EntitySchema | None
    """Entity schema for its documents. Null: that of the generation."""
    deletion: CollectionDeletion | None
    """A deletion in progress; of a single collection also the latest one."""


class CollectionSettings(Request):
    """Settings to change. Null unsets a setting; an omitted one keeps its value."""

    default_profile: ProfileName | None = None
    """Workflow profile of questions that name the collection and no profile."""
    chunking: ProfileName | None = None
    """Chunking profile for documents that arrive from now on."""
    extract: EntitySchema | None = None
    """Entity schema for documents that arrive from now on."""


class AcceptedDeletion(ResponseModel):
    deletion_id: UUID
    status: Literal["accepted"] = "accepted"


@router.get("", operation_id="list_collections")
@operation("reader")
async def list_collections(services: ServicesDep, caller: Caller) -> Page[DocumentCollection]:
    """List collections that have documents, settings or a deletion in progress."""
    return Page[DocumentCollection].build(await services.collections.list_collections(caller))


@router.get(NAME_PATH, operation_id="get_collection")
@operation("reader")
async def get_collection(
    collection: CollectionName, services: ServicesDep, caller: Caller
) -> DocumentCollection:
    """Get a collection."""
    fields = await services.collections.get_collection(caller, collection)
    return DocumentCollection.model_validate(fields)


@router.put(NAME_PATH, operation_id="configure_collection")
@operation("admin", audit=("collection.configured", "{collection}"))
async def configure_collection(
    collection: CollectionName,
    settings: CollectionSettings,
    services: ServicesDep,
    caller: WholeTenant,
) -> DocumentCollection:
    """Change settings of a collection, which need not have documents yet.

    `chunking` and `extract` hold for documents that are sent from now on: send others again with
    `force`.
    """
    changes = settings.model_dump(mode="json", include=settings.model_fields_set)
    fields = await services.collections.configure(caller, collection, changes)
    return DocumentCollection.model_validate(fields)


@router.delete(NAME_PATH, status_code=202, operation_id="delete_collection")
@operation("admin", audit=("collection.deleted", "{collection}"))
async def delete_collection(
    collection: CollectionName, services: ServicesDep, caller: WholeTenant
) -> AcceptedDeletion:
    """Delete every document that the collection has now, and its default profile.

    Documents disappear from results as if each was deleted; those that arrive later stay.
    """
    deletion_id = await services.collections.delete_collection(caller, collection)
    return AcceptedDeletion(deletion_id=deletion_id)
