"""Follow the relations of a question on a graph server, within half of the channel's time.

Only entities and chunk ids come from the server. The snapshot maps them to the chunks that are
visible, so that a server with outdated or erased documents adds none.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from retrieval.ranking.channels import ChannelRequest
from schemas.channels import GraphProfile
from schemas.errors import AnabranchError, InvalidRequest
from schemas.ids import parse_uuid
from schemas.ports.graph import GraphQuery, GraphServer, no_graph_server_error
from schemas.ports.search import EntitySeed, Hit

KEYS_PARAMETER = "keys"
"""Parameter of the chat model's query: the normalized names that the question was linked to."""
CHUNK_COLUMN = "chunk_id"


@dataclass(frozen=True, slots=True)
class ServerSearch:
    """`hits` are None when the tables must serve; `notes` say why."""

    hits: Sequence[Hit] | None
    served_by: Literal["sql", "bolt", "cypher"] = "sql"
    notes: tuple[str, ...] = ()


async def search_server(
    request: ChannelRequest, seeds: Sequence[EntitySeed], hops: int, min_hops: int
) -> ServerSearch:
    """Search by the chat model's query, if there is one, else by relations that are followed."""
    settings = GraphProfile.model_validate(request.settings)
    if settings.backend != "bolt" or hops == 0:
        return ServerSearch(None)
    server = request.graph_server
    if server is None:
        reason = _format_error(no_graph_server_error(request.tenant))
        return ServerSearch(None, notes=(_format_fallback(reason),))
    if obstacle := _find_obstacle(request, settings):
        return ServerSearch(None, notes=(_format_fallback(obstacle),))
    notes: list[str] = []
    try:
        async with asyncio.timeout(settings.timeout_s / 2):
            entities = await request.snapshot.resolve_seeds(request.tenant, seeds)
            if request.cypher is not None:
                try:
                    keys = list(dict.fromkeys(key for _, key in entities))
                    if hits := await _run_cypher(request, server, request.cypher, keys):
                        return ServerSearch(hits, "cypher")
                    notes.append("The chat model's graph query found no chunk.")
                except AnabranchError as error:
                    notes.append(f"The chat model's graph query failed ({_format_error(error)}).")
            weights: dict[UUID, float] = {}
            for (entity_id, _), seed in zip(entities, seeds, strict=True):
                # As in query `linked_seeds`: two names may be of one entity.
                weights[entity_id] = max(weights.get(entity_id, 0.0), seed.weight)
            reached = await _follow_entities(
                server,
                request.tenant,
                weights,
                hops=hops,
                min_hops=min_hops,
                fan_out=settings.fan_out,
                decay=settings.decay,
            )
        hits = await request.snapshot.search_graph_nodes(
            request.tenant,
            entities=reached,
            chunks={},
            filters=request.filters,
            k=request.k,
        )
        return ServerSearch(hits, "bolt", tuple(notes))
    except AnabranchError as error:
        reason = _format_error(error)
    except TimeoutError:
        reason = f"TIMED_OUT: The graph server took longer than {settings.timeout_s / 2:g} s."
    return ServerSearch(None, notes=(*notes, _format_fallback(reason)))


def _find_obstacle(request: ChannelRequest, settings: GraphProfile) -> str | None:
    """Return why a graph server must not serve the request, or None."""
    if settings.strategy == "pagerank":
        return "strategy `pagerank` needs every edge around the entities, which it does not return"
    generation = request.snapshot.generation
    if request.readers is not None:
        return "the caller is limited to readers, and the server has the documents of all"
    if generation.state != "live":
        return f"generation {generation.name} is not the live one, which the server has"
    return None


def _format_fallback(reason: str) -> str:
    return f"Relations were followed in the tables, not on the graph server ({reason})."


def _format_error(error: AnabranchError) -> str:
    return f"{error.code}: {error.detail}"


async def _follow_entities(
    server: GraphServer,
    tenant: str,
    weights: Mapping[UUID, float],
    *,
    hops: int,
    min_hops: int,
    fan_out: int,
    decay: float,
) -> Mapping[UUID, float]:
    """Return the entities from `min_hops` to `hops` relations off those with weights.

    Their scores are those of query `graph`: the sum over all paths of weight x relation weights x
    decays.
    """
    reached: dict[UUID, float] = defaultdict(float)
    frontier = weights
    for hop in range(hops + 1):
        for entity_id, score in frontier.items() if hop >= min_hops else ():
            reached[entity_id] += score
        if hop == hops or not frontier:
            break
        following: dict[UUID, float] = defaultdict(float)
        for relation in await server.follow_relations(tenant, list(frontier), fan_out):
            following[relation.target] += frontier[relation.source] * relation.weight * decay
        frontier = following
    return reached


async def _run_cypher(
    request: ChannelRequest, server: GraphServer, cypher: GraphQuery, keys: Sequence[str]
) -> Sequence[Hit]:
    """Return the chunks that the chat model's query names, in its order.

    The server checks the query again, and binds it to the tenant.
    """
    found = await server.run_query(
        request.tenant,
        cypher.model_copy(update={"parameters": {**cypher.parameters, KEYS_PARAMETER: list(keys)}}),
    )
    if CHUNK_COLUMN not in found.columns:
        raise InvalidRequest(f"The result has no column {CHUNK_COLUMN}.", code="CYPHER_REJECTED")
    column = found.columns.index(CHUNK_COLUMN)
    chunk_ids = dict.fromkeys(filter(None, (parse_uuid(str(row[column])) for row in found.rows)))
    scores = {chunk_id: 1 / rank for rank, chunk_id in enumerate(chunk_ids, 1)}
    return await request.snapshot.search_graph_nodes(
        request.tenant, entities={}, chunks=scores, filters=request.filters, k=request.k
    )
