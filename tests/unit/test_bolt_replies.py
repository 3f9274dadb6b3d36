"""What a graph server replies over Bolt is checked, whatever it sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from neo4j import Record
from neo4j.exceptions import BrokenRecordError

from engines.graph.bolt import BoltGraph
from schemas.errors import AnabranchError, InvalidRequest
from schemas.ports.graph import GraphQuery

ADA, BOB = UUID(int=1), UUID(int=2)
QUERY = GraphQuery(cypher="MATCH (c:Chunk) RETURN c.id AS a, c.text AS b")


@dataclass
class FakeResult:
    columns: Sequence[str]
    records: Sequence[Any]

    def keys(self) -> Sequence[str]:
        return self.columns

    async def fetch(self, limit: int) -> Sequence[Any]:
        return self.records[:limit]


@dataclass
class FakeServer:
    """Driver and session; every query gets the same reply."""

    columns: Sequence[str] = ("a", "b")
    rows: Sequence[Sequence[Any]] = ()
    error: Exception | None = None

    def session(self, **options: Any) -> FakeServer:
        return self

    async def __aenter__(self) -> FakeServer:
        return self

    async def __aexit__(self, *error: object) -> None:
        return None

    async def run(self, query: object, parameters: Mapping[str, object]) -> FakeResult:
        if self.error is not None:
            raise self.error
        return FakeResult(
            self.columns, [Record(zip(self.columns, row, strict=True)) for row in self.rows]
        )


def make_graph(server: FakeServer) -> BoltGraph:
    driver: Any = server
    return BoltGraph(driver, {"acme": ""}, timeout_s=5, max_rows=10)


async def test_values_that_json_lacks_are_written_in_another_form() -> None:
    server = FakeServer(rows=[[float("nan"), b"\xff\xfe"]])
    found = await make_graph(server).run_query("acme", QUERY)
    assert found.rows == [[None, "__4="]]


@pytest.mark.parametrize(
    "server",
    [
        FakeServer(columns=("a", "a"), rows=[[1, 2]]),
        FakeServer(error=OverflowError("Integer 2**70 out of range")),
        FakeServer(error=UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid")),
    ],
    ids=["two columns of one name", "large parameter", "text of another encoding"],
)
async def test_rows_that_cannot_be_read_are_rejected(server: FakeServer) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await make_graph(server).run_query("acme", QUERY)
    assert caught.value.code == "CYPHER_REJECTED"


async def test_broken_value_is_a_failure_of_the_server() -> None:
    class BrokenRecord:
        def data(self) -> None:
            raise BrokenRecordError("unknown time zone")

    class BrokenServer(FakeServer):
        async def run(self, query: object, parameters: Mapping[str, object]) -> FakeResult:
            return FakeResult(self.columns, [BrokenRecord()])

    with pytest.raises(AnabranchError) as caught:
        await make_graph(BrokenServer()).run_query("acme", QUERY)
    assert caught.value.code == "GRAPH_UNAVAILABLE"


@pytest.mark.parametrize(
    "row",
    [
        [str(BOB), [str(ADA)], [0.5]],
        [1, [str(ADA)], [0.5]],
        [str(ADA), [2], [0.5]],
        [str(ADA), [str(BOB)], [float("nan")]],
        [str(ADA), [str(BOB)], [1e300]],
        [str(ADA), [str(BOB)], [-1.0]],
        [str(ADA), [str(BOB)] * 3, [0.5] * 3],
        [str(ADA), [str(BOB)], []],
        [str(ADA), None, None],
        [None, [str(BOB)], [0.5]],
    ],
)
async def test_relation_that_was_not_asked_for_is_rejected(row: Sequence[Any]) -> None:
    server = FakeServer(columns=("source", "targets", "weights"), rows=[row])
    with pytest.raises(InvalidRequest) as caught:
        await make_graph(server).follow_relations("acme", [ADA], fan_out=2)
    assert caught.value.code == "CYPHER_REJECTED"
