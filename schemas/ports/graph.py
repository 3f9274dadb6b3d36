"""Graph servers that answer Cypher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol
from uuid import UUID

from pydantic import Field

from schemas.errors import InvalidRequest
from schemas.models import Described
from schemas.values import Value

Scalar = Annotated[str, Field(max_length=10_000)] | bool | int | float | None
ParameterName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]


class GraphQuery(Value):
    """A read-only Cypher query with its parameters."""

    cypher: str = Field(
        min_length=1,
        max_length=10_000,
        examples=["MATCH (c:Chunk)-[:MENTIONS]->(e:Entity) WHERE e.key = $key RETURN c.id"],
    )
    """Query in the accepted subset of openCypher. Values are parameters."""
    parameters: dict[ParameterName, Scalar | Annotated[list[Scalar], Field(max_length=1_000)]] = (
        Field({}, max_length=64)
    )
    """Value of each $name of the query."""


class GraphRows(Described):
    """Rows of a graph query. Nodes are objects, paths lists of nodes and relationship types."""

    columns: list[str]
    rows: list[list[Any]]
    limit: int = Field(description="Maximum number of rows; the result may have more.")


@dataclass(frozen=True, slots=True)
class FollowedRelation:
    """A relation that was followed from one entity to another, in either direction."""

    source: UUID
    target: UUID
    weight: float


class GraphServer(Protocol):
    """A graph server that is bound to tenants."""

    async def run_query(self, tenant: str, query: GraphQuery) -> GraphRows:
        """Check the query and run it. Raises InvalidRequest, EngineUnavailable."""

    async def follow_relations(
        self, tenant: str, entity_ids: Sequence[UUID], fan_out: int
    ) -> Sequence[FollowedRelation]:
        """Return the `fan_out` heaviest relations of each entity per direction.

        Raises InvalidRequest, EngineUnavailable.
        """


def no_graph_server_error(tenant: str) -> InvalidRequest:
    return InvalidRequest(
        f"No graph server is configured for tenant {tenant}.",
        code="NO_GRAPH_SERVER",
        remedy="Set ANABRANCH_GRAPH__BOLT_URL and ANABRANCH_GRAPH__DATABASES.",
    )
