"""A graph server with Bolt (ArcadeDB), filled from the graph views."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from neo4j import GraphDatabase

from engines.graph.bolt import BoltGraph, open_bolt_graph

AUTH = ("root", "arcade-test-1")
# A process of its own, since a JVM cannot be stopped within one.
SERVER = """
import sys
import arcadedb_embedded

root, bolt_port, http_port, password = sys.argv[1:]
server = arcadedb_embedded.create_server(root_path=root, root_password=password, config={
    "server_plugins": "Bolt:com.arcadedb.bolt.BoltProtocolPlugin",
    "bolt_host": "127.0.0.1", "bolt_port": int(bolt_port),
    "host": "127.0.0.1", "http_port": int(http_port),
})
server.start()
server.create_database("shared")
print("ready", flush=True)
sys.stdin.read()
"""
NODES = {"Entity": "graph_entities", "Document": "graph_documents", "Chunk": "graph_chunks"}
RELATIONSHIPS = {
    "RELATED": ("graph_related", "Entity", "subject_id", "Entity", "object_id"),
    "MENTIONS": ("graph_mentions", "Chunk", "chunk_id", "Entity", "entity_id"),
    "PART_OF": ("graph_part_of", "Chunk", "chunk_id", "Document", "document_id"),
}


def find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def bolt_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root, port = tmp_path_factory.mktemp("arcadedb"), find_free_port()
    arguments = [str(root), str(port), str(find_free_port()), AUTH[1]]
    with (
        (root / "output.txt").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-c", SERVER, *arguments],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        assert process.stdout and process.stdin
        for line in process.stdout:
            if line == "ready\n":
                break
        else:
            pytest.fail((root / "output.txt").read_text())
        try:
            yield f"bolt://127.0.0.1:{port}"
        finally:
            process.kill()


async def read_view(connection: asyncpg.Connection, tenant: str, view: str) -> list[dict[str, Any]]:
    """Read a view as the role of a tenant, as PuppyGraph does."""
    role = await connection.fetchval("select grant_graph_access($1)", tenant)
    await connection.execute(f'grant "{role}" to current_user')
    await connection.execute(f'set role "{role}"')
    try:
        return [dict(row) for row in await connection.fetch(f"select * from {view}")]
    finally:
        await connection.execute("reset role")


async def load_graph(connection: asyncpg.Connection, url: str, *tenants: str) -> None:
    """Copy the graph of the tenants into one database. A deployment has one for each."""
    with GraphDatabase.driver(url, auth=AUTH) as driver, driver.session(database="shared") as to:
        to.run("MATCH (n) DETACH DELETE n").consume()
        for tenant in tenants:
            for label, view in NODES.items():
                rows = await read_view(connection, tenant, view)
                to.run(f"UNWIND $rows AS row CREATE (n:{label}) SET n = row", rows=rows).consume()
            for kind, (view, source, source_id, target, target_id) in RELATIONSHIPS.items():
                rows = await read_view(connection, tenant, view)
                to.run(
                    f"UNWIND $rows AS row MATCH (a:{source} {{id: row.{source_id}}}) "
                    f"MATCH (b:{target} {{id: row.{target_id}}}) "
                    f"CREATE (a)-[r:{kind}]->(b) SET r = row",
                    rows=rows,
                ).consume()


@asynccontextmanager
async def open_graph(
    url: str, *, timeout_s: float = 20.0, max_rows: int = 100, auth: tuple[str, str] = AUTH
) -> AsyncIterator[BoltGraph]:
    databases = {"acme": "shared", "default": "missing"}
    async with open_bolt_graph(
        url, auth, databases, timeout_s=timeout_s, max_rows=max_rows
    ) as graph:
        yield graph
