"""Cypher that is accepted, how it is bound to a tenant, and attacks that are rejected.

What a graph server replies over Bolt is checked, whatever it sends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from neo4j import Record
from neo4j.exceptions import BrokenRecordError

from engines.graph.bolt import BoltGraph
from engines.graph.cypher import MAX_TOKENS, check_cypher
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


TENANT = "{tenant: $tenant}"


def check(text: str) -> str:
    """Return the accepted query without spaces."""
    return check_cypher(text, max_rows=100).text.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MATCH (n) RETURN n", "MATCH(n{T})RETURNnLIMIT100"),
        (
            "match (a:Entity {key: $key})-->(b) where b.name <> $x return b.name limit 5",
            "MATCH(a:Entity{tenant:$tenant,key:$key})-[{T}]->(b{T})WHEREb.name<>$xRETURNb.nameLIMIT5",
        ),
        (
            "MATCH p = (a)<-[r:RELATED|MENTIONS*1..3 {type: $t}]-() RETURN nodes(p) LIMIT 9999",
            "MATCHp=(a{T})<-[r:RELATED|MENTIONS*1..3{tenant:$tenant,type:$t}]-({T})"
            "RETURNnodes(p)LIMIT100",
        ),
        (
            "MATCH (c:Chunk)-[:MENTIONS]->(e) WITH e, count(*) AS n WHERE n > -1 AND NOT e.name "
            "STARTS WITH $p RETURN e.name, n ORDER BY n DESC SKIP 2 LIMIT 3",
            "MATCH(c:Chunk{T})-[:MENTIONS{T}]->(e{T})WITHe,count(*)ASnWHEREn>-1ANDNOTe.name"
            "STARTSWITH$pRETURNe.name,nORDERBYnDESCSKIP2LIMIT3",
        ),
    ],
)
def test_accepted_query_is_bound_to_tenant_and_limited(text: str, expected: str) -> None:
    assert check(text) == expected.replace("{T}", TENANT.replace(" ", ""))


def test_parameters_of_the_query_are_listed_without_tenant() -> None:
    query = "UNWIND $keys AS key MATCH (e:Entity) WHERE e.key = key OR e.id IN [$a, 1] RETURN e"
    assert check_cypher(query, max_rows=7).parameters == {"keys", "a"}
    assert check_cypher(query, max_rows=7).limit == 7


READ = "MATCH (n) RETURN n"
ATTACKS = {
    # Writes.
    "create": "CREATE (n:Entity) RETURN n",
    "merge": "MERGE (n:Entity) RETURN n",
    "set": "MATCH (n) SET n.name = $x RETURN n",
    "set after where": "MATCH (n) WHERE n.id = $x SET n.name = $x RETURN n",
    "delete": "MATCH (n) DETACH DELETE n RETURN 1",
    "remove": "MATCH (n) REMOVE n.name RETURN n",
    "foreach": "MATCH (n) FOREACH (x IN [1] | SET n.a = x) RETURN n",
    "write after return": READ + " SET n.name = $x",
    "second statement": READ + "; MATCH (n) DELETE n",
    "write after limit": READ + " LIMIT 1 DELETE n",
    "index": "CREATE INDEX x FOR (n:Entity) ON (n.id)",
    "drop": "DROP DATABASE acme",
    # Procedures, files and functions.
    "call": "CALL db.labels() YIELD label RETURN label",
    "call in the middle": "MATCH (n) CALL apoc.load.json($u) YIELD value RETURN value",
    "call subquery": "MATCH (n) CALL { MATCH (m) RETURN m } RETURN m",
    "load csv": "LOAD CSV FROM $u AS row RETURN row",
    "apoc function": "MATCH (n) RETURN apoc.load.json($u)",
    "unlisted function": "UNWIND range(1, 999999999) AS x RETURN x",
    "collect": "MATCH (n) RETURN collect(n)",
    "namespaced call of a listed name": "MATCH (n) RETURN apoc.coalesce($u)",
    "use": "USE other MATCH (n) RETURN n",
    "union": READ + " UNION MATCH (m) RETURN m",
    "show": "SHOW DATABASES",
    # Another tenant.
    "tenant property": "MATCH (n {tenant: $other}) RETURN n",
    "tenant parameter": "MATCH (n) WHERE n.tenant <> $tenant RETURN n",
    "tenant of relationship": "MATCH (a)-[r {tenant: $other}]->(b) RETURN b",
    "pattern in where": "MATCH (a) WHERE (a)-[:RELATED]->({tenant: $other}) RETURN a",
    "anonymous pattern in where": "MATCH (a) WHERE (a)--() RETURN a",
    "dashes as arithmetic": "MATCH (a), (b) WHERE (a)--(b) RETURN a",
    "list as arithmetic": "MATCH (a), (b) WHERE (a)-[b]-(b) RETURN a",
    "pattern comprehension": "MATCH (a) RETURN [(a)-->(x) | x.name]",
    "exists subquery": "MATCH (a) WHERE EXISTS { MATCH (x) RETURN x } RETURN a",
    "exists function": "MATCH (a) WHERE exists((a)-->()) RETURN a",
    "count subquery": "MATCH (a) RETURN COUNT { MATCH (x) } AS n",
    "shortest path": "MATCH p = shortestPath((a)-[*1..3]-(b)) RETURN p",
    "variable as property": "UNWIND $keys AS k MATCH (e {key: k}) RETURN e",
    "map parameter": "MATCH (n $props) RETURN n",
    "map projection": "MATCH (n) RETURN n {.*, x: [(m) | m]}",
    "label expression": "MATCH (n:Entity|Secret) RETURN n",
    "other label": "MATCH (n:User) RETURN n",
    "other relationship": "MATCH (a)-[:OWNS]->(b) RETURN b",
    "inline where": "MATCH (n WHERE n.tenant = $other) RETURN n",
    "quantified path": "MATCH ((a)-->(b)){1,3} RETURN a",
    # Text that hides text.
    "block comment": "MATCH (n) /* tenant */ RETURN n",
    "line comment": "MATCH (n) // {tenant: $tenant}\nRETURN n",
    "string": "MATCH (n {name: 'x'}) RETURN n",
    "double quotes": 'MATCH (n) WHERE n.name = "x" RETURN n',
    "backticks": "MATCH (`n`) RETURN `n`",
    "unicode escape": "MATCH (n) RETURN n \\u003B DELETE n",
    "fullwidth letters": "MATCH (n) \uff24\uff25\uff2c\uff25\uff34\uff25 n RETURN n",
    "no-break space": "MATCH\u00a0(n) RETURN n",
    "cyrillic name": "MATCH (\u0430) RETURN \u0430",
    "zero-width space": "MATCH (n) RE\u200bTURN n",
    "right-to-left mark": "MATCH (n)\u202e RETURN n",
    "unicode dash": "MATCH (a)\u2014>(b) RETURN b",
    "nul": "MATCH (n)\0 RETURN n",
    # Huge results and slow queries.
    "unbounded path": "MATCH (a)-[*]->(b) RETURN b",
    "half-bounded path": "MATCH (a)-[*1..]->(b) RETURN b",
    "long path": "MATCH (a)-[*1..9]->(b) RETURN b",
    "growing value": "WITH $x AS a WITH a + a AS b RETURN b",
    "growing list": "WITH $x AS a WITH [a, a] AS b RETURN b",
    "limit of an expression": READ + " LIMIT $n",
    "negative limit": READ + " LIMIT -1",
    "huge limit": READ + " LIMIT 99999999999999999999",
    "many patterns": "MATCH " + ", ".join(f"(n{i})" for i in range(20)) + " RETURN n1",
    "many words": "MATCH (n) RETURN " + ", ".join(["n"] * MAX_TOKENS),
    "deep nesting": "RETURN " + "(" * 300 + "1" + ")" * 300,
    "star": "MATCH (n) RETURN *",
    "empty": "",
    "no return": "MATCH (n)",
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_attack_is_rejected_with_position(attack: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check(attack)
    assert caught.value.code == "CYPHER_NOT_ALLOWED" and "at character" in caught.value.detail


def test_every_node_and_relationship_of_a_pattern_is_bound() -> None:
    text = check("MATCH (a)--(b)-[r]->(c:Entity)<--(d), (e) OPTIONAL MATCH (e)-[*1..2]-() RETURN a")
    assert text.count("{tenant:$tenant}") == 11
