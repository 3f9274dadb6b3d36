"""Cypher that is accepted, how it is bound to a tenant, and attacks that are rejected."""

from __future__ import annotations

import pytest

from engines.graph.cypher import MAX_TOKENS, check_cypher
from schemas.errors import InvalidRequest

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
