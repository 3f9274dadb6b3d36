"""Graph server over Bolt: Neo4j, PuppyGraph, or another server with openCypher."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from neo4j import READ_ACCESS, AsyncDriver, AsyncGraphDatabase, Query
from neo4j.exceptions import AuthError, ClientError, DriverError, Neo4jError
from pydantic_core import to_jsonable_python

from engines.graph.cypher import TENANT_PARAMETER, check_cypher, check_parameters
from engines.resilience import ResilientCaller, ServerCallError
from engines.server_settings import ServerRetryPolicy
from schemas.batching import CALLER_ABANDONED
from schemas.errors import EngineUnavailable, InvalidRequest
from schemas.ports.graph import FollowedRelation, GraphQuery, GraphRows, no_graph_server_error

MAX_CONNECTIONS = 4
CONNECT_TIMEOUT_S = 3.0
# A caller waits for the answer, so a failed query is not repeated.
RETRY_POLICY = ServerRetryPolicy(attempts=1)
# Ours, not of the accepted language: `collect` and slices, which cut the list of each entity.
# Ties in the order that the tables have, whose ids sort as their text does.
FOLLOW_RELATIONS = """
MATCH (a:Entity {tenant: $tenant})%s[r:RELATED {tenant: $tenant}]%s(b:Entity {tenant: $tenant})
WHERE a.id IN $ids
WITH a.id AS source, b.id AS target, r.weight AS weight ORDER BY weight DESC, target
WITH source, collect(target) AS targets, collect(weight) AS weights
RETURN source, targets[0..$fan_out] AS targets, weights[0..$fan_out] AS weights
"""
DIRECTIONS = (("-", "->"), ("<-", "-"))


@dataclass(frozen=True, slots=True)
class BoltGraph:
    """Runs checked queries in the database of the tenant.

    `databases` maps tenants to databases of the server; "" is its default database.
    """

    driver: AsyncDriver
    databases: Mapping[str, str]
    timeout_s: float
    max_rows: int
    _caller: ResilientCaller = field(
        default_factory=lambda: ResilientCaller("The graph server", RETRY_POLICY)
    )

    async def run_query(self, tenant: str, query: GraphQuery) -> GraphRows:
        self._require_database(tenant)
        checked = check_cypher(query.cypher, max_rows=self.max_rows)
        check_parameters(checked, query.parameters)

        async def request() -> tuple[list[str], list[list[Any]]]:
            try:
                return await self._fetch_rows(tenant, checked.text, query.parameters, checked.limit)
            except TimeoutError as error:
                raise InvalidRequest(
                    f"The graph query took longer than {self.timeout_s:g} s.",
                    code="GRAPH_QUERY_TIMEOUT",
                    remedy="Match fewer nodes, or raise ANABRANCH_GRAPH__TIMEOUT_S.",
                ) from error
            # Else callers who leave could open the circuit for those of other tenants.
            except asyncio.CancelledError as error:
                raise asyncio.CancelledError(CALLER_ABANDONED) from error

        columns, rows = await self._caller.call(request)
        return GraphRows(columns=columns, rows=rows, limit=checked.limit)

    async def follow_relations(
        self, tenant: str, entity_ids: Sequence[UUID], fan_out: int
    ) -> list[FollowedRelation]:
        """Return the heaviest relations of each entity per direction.

        Raises InvalidRequest also for more entities than the maximum number of rows, one for each.
        """
        self._require_database(tenant)
        if len(entity_ids) > self.max_rows:
            raise InvalidRequest(
                f"{len(entity_ids):,} entities are reached, more than the {self.max_rows:,} rows "
                "that the graph server may return.",
                code="GRAPH_TOO_WIDE",
                remedy="Lower graph.fan_out in the profile, or raise ANABRANCH_GRAPH__MAX_ROWS.",
            )
        parameters = {"ids": [str(entity_id) for entity_id in entity_ids], "fan_out": fan_out}

        async def request() -> list[list[Any]]:
            try:
                return [
                    row
                    for direction in DIRECTIONS
                    for row in (
                        await self._fetch_rows(
                            tenant, FOLLOW_RELATIONS % direction, parameters, self.max_rows
                        )
                    )[1]
                ]
            # The query is ours: a server that is too slow for it is counted as failing.
            except TimeoutError as error:
                raise ServerCallError(
                    f"The graph server took longer than {self.timeout_s:g} s.",
                    code="GRAPH_UNAVAILABLE",
                    remedy="Raise ANABRANCH_GRAPH__TIMEOUT_S.",
                    is_retryable=False,
                ) from error

        rows = await self._caller.call(request)
        try:
            return [
                relation
                for source, targets, weights in rows
                for relation in _parse_relations(source, targets, weights, entity_ids, fan_out)
            ]
        except (AttributeError, TypeError, ValueError) as error:
            raise InvalidRequest(
                f"The graph server has a relation without ids or weight ({error}).",
                code="CYPHER_REJECTED",
                remedy="Load the graph from the views again.",
            ) from error

    def _require_database(self, tenant: str) -> None:
        if tenant not in self.databases:
            raise no_graph_server_error(tenant)

    async def _fetch_rows(
        self, tenant: str, cypher: str, parameters: Mapping[str, object], limit: int
    ) -> tuple[list[str], list[list[Any]]]:
        """Return columns and rows. Raises TimeoutError, EngineUnavailable, InvalidRequest."""
        # Servers may ignore the time limit of a transaction. Cancellation drops the connection.
        with _translate_errors():
            async with (
                asyncio.timeout(self.timeout_s),
                self.driver.session(
                    database=self.databases[tenant] or None,
                    default_access_mode=READ_ACCESS,
                    fetch_size=self.max_rows,
                ) as session,
            ):
                result = await session.run(
                    Query(cypher, timeout=self.timeout_s), {**parameters, TENANT_PARAMETER: tenant}
                )
                columns = list(result.keys())
                records = await result.fetch(limit)
            rows = [_to_json(list(record.data().values())) for record in records]
        if any(len(row) != len(columns) for row in rows):
            raise InvalidRequest(
                "Two columns of the result have the same name.",
                code="CYPHER_REJECTED",
                remedy="Name the columns with AS.",
            )
        return columns, rows


def _to_json(row: list[Any]) -> list[Any]:
    converted = to_jsonable_python(row, fallback=str, bytes_mode="base64", inf_nan_mode="null")
    assert isinstance(converted, list)
    return converted


def _parse_relations(
    source: str,
    targets: Sequence[str],
    weights: Sequence[float],
    entity_ids: Sequence[UUID],
    fan_out: int,
) -> Iterator[FollowedRelation]:
    source_id = UUID(source)
    if source_id not in entity_ids or len(targets) > fan_out:
        raise ValueError("more than requested")
    for target, weight in zip(targets, weights, strict=True):
        # Weights are numbers of the views: another one would outweigh all other candidates.
        if not 0 <= float(weight) <= 1:
            raise ValueError(f"weight {weight!a}")
        yield FollowedRelation(source_id, UUID(target), float(weight))


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except AuthError as error:
        raise EngineUnavailable(
            "The graph server refuses the user name and password.",
            code="ENGINE_KEY_REFUSED",
            remedy="Check ANABRANCH_GRAPH__USER and ANABRANCH_GRAPH__PASSWORD.",
        ) from error
    except ClientError as error:
        raise InvalidRequest(
            f"The graph server rejects the query: {error.message}",
            code="CYPHER_REJECTED",
            remedy="Correct the query. Variables must be bound by MATCH, WITH or UNWIND.",
        ) from error
    # Such as a parameter that exceeds 64 bits.
    except (OverflowError, ValueError) as error:
        raise InvalidRequest(
            f"The graph query or its result cannot be transferred: {error}.",
            code="CYPHER_REJECTED",
            remedy="Pass other parameters, or return other values.",
        ) from error
    except (DriverError, Neo4jError) as error:
        raise _server_error(error) from error
    # A TimeoutError is an OSError, which the caller of the query tells from a lost connection.
    except TimeoutError:
        raise
    except OSError as error:
        raise _server_error(error) from error


def _server_error(error: Exception) -> ServerCallError:
    return ServerCallError(
        f"The graph server does not answer ({type(error).__name__}).",
        code="GRAPH_UNAVAILABLE",
        remedy="Check ANABRANCH_GRAPH__BOLT_URL.",
        is_retryable=False,
    )


@asynccontextmanager
async def open_bolt_graph(
    url: str,
    auth: tuple[str, str] | None,
    databases: Mapping[str, str],
    *,
    timeout_s: float,
    max_rows: int,
) -> AsyncIterator[BoltGraph]:
    """Open a pool of connections, which connects with the first query."""
    async with AsyncGraphDatabase.driver(
        url,
        auth=auth,
        max_connection_pool_size=MAX_CONNECTIONS,
        connection_timeout=CONNECT_TIMEOUT_S,
        connection_acquisition_timeout=timeout_s,
        telemetry_disabled=True,
    ) as driver:
        yield BoltGraph(driver, databases, timeout_s, max_rows)
