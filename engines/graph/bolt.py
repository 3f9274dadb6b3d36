"""Graph server over Bolt: Neo4j, PuppyGraph, or another server with openCypher."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from neo4j import READ_ACCESS, AsyncDriver, AsyncGraphDatabase, Query
from neo4j.exceptions import AuthError, ClientError, DriverError, Neo4jError
from pydantic_core import to_jsonable_python

from engines.graph.cypher import TENANT_PARAMETER, CheckedCypher, check_cypher
from schemas.errors import EngineUnavailable, InvalidRequest
from schemas.ports.graph import GraphQuery, GraphRows, no_graph_server_error

MAX_CONNECTIONS = 4
CONNECT_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class BoltGraph:
    """Runs checked queries in the database of the tenant.

    `databases` maps tenants to databases of the server; "" is its default database.
    """

    driver: AsyncDriver
    databases: Mapping[str, str]
    timeout_s: float
    max_rows: int

    async def run_query(self, tenant: str, query: GraphQuery) -> GraphRows:
        if tenant not in self.databases:
            raise no_graph_server_error(tenant)
        checked = check_cypher(query.cypher, max_rows=self.max_rows)
        _require_parameters(checked, query)
        parameters = {**query.parameters, TENANT_PARAMETER: tenant}
        try:
            # Servers may ignore the time limit of a transaction. Cancellation drops the connection.
            async with asyncio.timeout(self.timeout_s):
                return await self._fetch_rows(tenant, checked, parameters)
        except TimeoutError as error:
            raise InvalidRequest(
                f"The graph query took longer than {self.timeout_s:g} s.",
                code="GRAPH_QUERY_TIMEOUT",
                remedy="Match fewer nodes, or raise ANABRANCH_GRAPH__TIMEOUT_S.",
            ) from error
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
        except (DriverError, Neo4jError, OSError) as error:
            raise EngineUnavailable(
                f"The graph server does not answer ({type(error).__name__}).",
                code="GRAPH_UNAVAILABLE",
                remedy="Check ANABRANCH_GRAPH__BOLT_URL. GET /v1/graph/subgraph needs no server.",
            ) from error

    async def _fetch_rows(
        self, tenant: str, checked: CheckedCypher, parameters: Mapping[str, object]
    ) -> GraphRows:
        async with self.driver.session(
            database=self.databases[tenant] or None,
            default_access_mode=READ_ACCESS,
            fetch_size=self.max_rows,
        ) as session:
            result = await session.run(
                Query(checked.text, timeout=self.timeout_s), dict(parameters)
            )
            columns = list(result.keys())
            records = await result.fetch(checked.limit)
        rows = [
            to_jsonable_python(list(record.data().values()), fallback=str) for record in records
        ]
        return GraphRows(columns=columns, rows=rows, limit=checked.limit)


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


def _require_parameters(checked: CheckedCypher, query: GraphQuery) -> None:
    missing = sorted(checked.parameters - query.parameters.keys())
    unused = sorted(query.parameters.keys() - checked.parameters)
    for names, problem in ((missing, "has no value for"), (unused, "does not use")):
        if names:
            raise InvalidRequest(
                f"The graph query {problem} {', '.join(f'${name}' for name in names)}.",
                code="CYPHER_PARAMETERS",
                remedy="Give `parameters` exactly the names that the query has.",
            )
