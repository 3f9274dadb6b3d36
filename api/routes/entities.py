"""Entities that documents mention, and their relations."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import Field

from api.operations import OperationRoute, operation
from api.services import Caller, PageCursor, PageLimit, PageSort, ServicesDep, WholeTenant
from schemas.entities import EntityAmendment, EntityMergeRequest, EntitySplitRequest
from schemas.errors import InvalidRequest, unknown_resource_error
from schemas.models import Request as RequestModel
from schemas.ports.graph import GraphQuery, GraphRows, no_graph_server_error
from schemas.responses import Page, ResponseModel
from schemas.run_records import GraphSummary

router = APIRouter(route_class=OperationRoute, tags=["graph"])
FilterValue = Annotated[str | None, Query(min_length=1, max_length=1024)]


class Node(ResponseModel):
    id: UUID
    type: str = Field(description="Such as PERSON, ORG, LOC, DATE or MONEY.")
    name: str
    mentions: int


class Entity(Node):
    aliases: list[str] = Field(description="Other spellings of the entity in documents.")
    added_aliases: list[str] = Field(description="Names that people gave to the entity.")


class Edge(ResponseModel):
    """A relation between two entities."""

    subject_id: UUID
    type: str
    object_id: UUID
    weight: float
    documents: int = Field(description="Documents that state it.")
    chunk_id: UUID = Field(description="A chunk that states it.")


class NamedEdge(Edge):
    subject: str
    object: str


class Occurrence(ResponseModel):
    """A mention of an entity in a visible document."""

    document_id: UUID
    external_id: str | None
    title: str | None
    chunk_id: UUID
    name: str = Field(description="As it is written there.")
    char_start: int
    char_end: int


class EntityClaim(ResponseModel):
    """A value that a document states about an entity."""

    property: str
    value: str
    document_id: UUID
    chunk_id: UUID
    char_start: int
    char_end: int


class FoundAlias(ResponseModel):
    """An alias that a document states."""

    alias: str
    kind: Literal["abbreviation", "defined_term"]
    """`abbreviation`, as in `European Central Bank (ECB)`, or `defined_term`, as in `Acme Robotics
    GmbH (the "Licensor")`, which holds in its document alone.
    """
    document_id: UUID
    chunk_id: UUID
    char_start: int
    char_end: int


class EntityPart(Node):
    """An entity as documents write it, with the type that they state."""

    aliases: list[str] = Field(description="Other spellings in documents.")


class EntityDetails(Entity):
    """An entity with at most 100 each of its parts, found aliases, mentions, relations and claims.

    The id of a merged entity leads to the one that it is part of.
    """

    parts: list[EntityPart]
    """The entity itself first, then those that people merged into it."""
    found_aliases: list[FoundAlias]
    """Aliases that documents state and that people neither gave nor removed."""
    occurrences: list[Occurrence]
    relations: list[NamedEdge]
    claims: list[EntityClaim]


class AmendedEntity(EntityDetails):
    status: Literal["applied", "accepted"]
    """`accepted`: the change is on the log and not yet in the tables."""


class Subgraph(ResponseModel):
    nodes: list[Node]
    edges: list[Edge]


async def resolve_entity(
    request: Request,
    services: ServicesDep,
    caller: Caller,
    entity: Annotated[
        str, Path(max_length=1024, description="Id, or name or alias whatever its case.")
    ],
    kind: Annotated[
        str | None,
        Query(alias="type", max_length=64, description="Type, if several have the name."),
    ] = None,
) -> UUID:
    """Return the id. Raises NotFound, and InvalidRequest if several entities have the name."""
    with suppress(ValueError):
        return UUID(entity)
    namesakes = await services.entities.find_by_name(caller, entity, kind)
    if not namesakes:
        raise unknown_resource_error("entity", repr(entity), "List entities with GET /v1/entities.")
    if len(namesakes) > 1:
        listed = ", ".join(f"{body['id']} ({body['type']})" for body in namesakes)
        raise InvalidRequest(
            f"Several entities have the name {entity!r}: {listed}.",
            code="AMBIGUOUS_NAME",
            remedy="Use the id, or name the type too.",
        )
    entity_id: UUID = namesakes[0]["id"]
    # The audit records the id: a name may come from a document that is erased later.
    request.path_params["entity"] = str(entity_id)
    return entity_id


EntityId = Annotated[UUID, Depends(resolve_entity)]


@router.get("/entities", operation_id="list_entities")
@operation("reader")
async def list_entities(
    services: ServicesDep,
    caller: Caller,
    text: FilterValue = None,
    kind: Annotated[str | None, Query(alias="type", max_length=64)] = None,
    sort: PageSort = None,
    after: PageCursor = None,
    limit: PageLimit = 50,
) -> Page[Entity]:
    """List entities."""
    page = await services.entities.list_entities(
        caller, text=text, kind=kind, sort=sort, after=after, limit=limit
    )
    return Page[Entity].build(*page)


@router.get("/entities/{entity:path}", operation_id="get_entity")
@operation("reader", problems="404 NOT_FOUND 422 AMBIGUOUS_NAME")
async def get_entity(entity: EntityId, services: ServicesDep, caller: Caller) -> EntityDetails:
    """Get an entity with its parts, aliases, mentions, relations and claims."""
    fields = await services.entities.get_entity(caller, entity)
    if fields is None:
        raise unknown_resource_error("entity", entity, "List entities with GET /v1/entities.")
    return EntityDetails.model_validate(fields)


@router.patch("/entities/{entity:path}", operation_id="amend_entity")
@operation(
    "admin",
    problems=("404 NOT_FOUND 422 AMBIGUOUS_NAME NOTHING_TO_AMEND TOO_MANY_ALIASES UNKNOWN_ALIAS"),
    audit=("entity.amended", "{entity}"),
)
async def amend_entity(
    entity: EntityId, body: EntityAmendment, services: ServicesDep, caller: WholeTenant
) -> AmendedEntity:
    """Add or remove aliases of an entity, or set its type. They apply to every generation."""
    return AmendedEntity.model_validate(
        await services.entity_changes.amend_entity(caller, entity, body)
    )


@router.post("/entities/{entity:path}/merge", operation_id="merge_entity")
@operation(
    "admin",
    problems="404 NOT_FOUND 422 AMBIGUOUS_NAME SAME_ENTITY",
    audit=("entity.merged", "{entity} into {id}"),
)
async def merge_entity(
    entity: EntityId, body: EntityMergeRequest, services: ServicesDep, caller: WholeTenant
) -> AmendedEntity:
    """Make an entity part of another one, which is returned. It applies to every generation."""
    return AmendedEntity.model_validate(
        await services.entity_changes.merge_entity(caller, entity, body.into)
    )


@router.post("/entities/{entity:path}/split", operation_id="split_entity")
@operation(
    "admin",
    problems="404 NOT_FOUND 422 AMBIGUOUS_NAME NOT_MERGED",
    audit=("entity.split", "{id} from {entity}"),
)
async def split_entity(
    entity: EntityId, body: EntitySplitRequest, services: ServicesDep, caller: WholeTenant
) -> AmendedEntity:
    """Make a part of an entity one of its own again; it is returned."""
    return AmendedEntity.model_validate(
        await services.entity_changes.split_entity(caller, entity, body.part)
    )


@router.get("/graph/subgraph", operation_id="get_subgraph")
@operation("reader")
async def get_subgraph(
    services: ServicesDep,
    caller: Caller,
    seed: Annotated[list[UUID], Query(min_length=1, max_length=50)],
    hops: Annotated[int, Query(ge=1, le=3)] = 1,
    limit: PageLimit = 100,
) -> Subgraph:
    """Get the nodes and edges around the given entities."""
    return Subgraph.model_validate(
        await services.entities.get_subgraph(caller, seed, hops=hops, limit=limit)
    )


class GraphSummaryRequest(RequestModel):
    """The answer around which the graph is summarized."""

    run_id: UUID = Field(description="Run that read relations or claims: mode hybrid or graph.")


@router.post("/graph/summary", operation_id="summarize_graph")
@operation(
    "reader", problems="404 NOT_FOUND RUN_ERASED RUN_INCOMPLETE 422 NO_CHAT_MODEL NO_GRAPH_FACTS"
)
async def summarize_graph(
    body: GraphSummaryRequest, services: ServicesDep, caller: Caller
) -> GraphSummary:
    """Summarize the relations and claims around an answer in cited bullets, by one call of the
    chat model. A bullet that cites none of them is removed, with a warning.

    The caps of the answer's profile hold. Summaries are cached until documents change.
    """
    return await services.run_history.summarize_graph(caller, body.run_id)


@router.post("/graph/query", operation_id="query_graph")
@operation("reader")
async def query_graph(body: GraphQuery, services: ServicesDep, caller: WholeTenant) -> GraphRows:
    """Run a read-only Cypher query on the configured graph server.

    It sees nodes and relationships of the caller's tenant alone. Values are parameters.
    """
    if services.graph is None:
        raise no_graph_server_error(caller.tenant)
    return await services.graph.run_query(caller.tenant, body)
