"""The graph channel on a graph server: who serves, and the chat model's Cypher."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest

from engines.chat.openai import OpenAIChat
from engines.graph.cypher import check_cypher, check_parameters
from engines.server_settings import ServerRetryPolicy, ServerSettings
from retrieval.prompting import render_prompt
from retrieval.ranking.channels import ChannelOutput, ChannelRequest
from retrieval.ranking.channels.graph import retrieve
from schemas.budgets import BudgetProfile
from schemas.channels import GraphProfile
from schemas.errors import EngineUnavailable, InvalidRequest
from schemas.events import QueryAnswered
from schemas.ids import make_entity_id
from schemas.ports.engines import QueryEmbedding
from schemas.ports.graph import FollowedRelation, GraphQuery, GraphRows
from schemas.profiles import Profile
from schemas.prompts import PromptProfile
from schemas.questions import Filters, QueryRequest, QueryResponse
from tests.fakes.openai_server import FakeOpenAI, fake_openai
from tests.support.api_client import LOCAL_CALLER
from tests.unit.retrieval_harness import RUN_ID, RetrievalHarness, make_harness
from tests.unit.retrieval_memory_index import IndexedChild, IndexedDocument, MemoryIndex

RELATION_QUESTION = "How is Harbour Estates connected to the warehouse?"
PEOPLE = ("ada", "bob", "cyd")


@dataclass
class MemoryGraphServer:
    """Follows relations between names, and answers Cypher with `rows` after the real check."""

    relations: Sequence[tuple[str, str, float]] = ()
    rows: Sequence[Sequence[Any]] = ()
    columns: Sequence[str] = ("chunk_id",)
    error: Exception | None = None
    delay_s: float = 0.0
    foreign_ids: Sequence[UUID] = ()
    queries: list[tuple[str, GraphQuery]] = field(default_factory=list)
    n_followed: int = 0

    async def run_query(self, tenant: str, query: GraphQuery) -> GraphRows:
        check_parameters(check_cypher(query.cypher, max_rows=100), query.parameters)
        self.queries.append((tenant, query))
        return GraphRows(columns=list(self.columns), rows=[list(row) for row in self.rows], limit=9)

    async def follow_relations(
        self, tenant: str, entity_ids: Sequence[UUID], fan_out: int
    ) -> Sequence[FollowedRelation]:
        self.n_followed += 1
        await asyncio.sleep(self.delay_s)
        if self.error is not None:
            raise self.error
        ids = [
            (make_entity_id(tenant, "name", start), make_entity_id(tenant, "name", end), weight)
            for subject, object_, weight in self.relations
            for start, end in ((subject, object_), (object_, subject))
        ]
        foreign = [
            FollowedRelation(entity_ids[0], entity_id, 1.0) for entity_id in self.foreign_ids
        ]
        return [FollowedRelation(*one) for one in ids if one[0] in entity_ids] + foreign


async def refuse_to_embed() -> QueryEmbedding:
    raise AssertionError("the graph channel needs no vector")


def make_request(index: MemoryIndex, server: MemoryGraphServer | None, **graph: Any) -> Any:
    settings = GraphProfile.model_validate({"backend": "bolt", "hops": 2, **graph})
    names = {"ada": 1.0}
    return ChannelRequest(
        index, "default", "", "en", names, Filters(), settings, 10, refuse_to_embed,
        graph_server=server,
    )  # fmt: skip


def make_chain() -> tuple[MemoryIndex, MemoryGraphServer]:
    """Index ada - bob - cyd, each in a chunk of its own."""
    index = MemoryIndex()
    children = [[IndexedChild(name)] for name in PEOPLE]
    document_id = index.add(IndexedDocument("chain", children, names=PEOPLE))
    relations = [("ada", "bob", 0.8), ("bob", "cyd", 0.6)]
    for subject, object_, weight in relations:
        index.add_relation(document_id, subject, object_, weight)
    return index, MemoryGraphServer(relations)


def get_scores(output: ChannelOutput) -> dict[UUID, float]:
    return {hit.chunk_id: hit.score for hit in output.hits}


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("strategy", ["traversal", "hybrid"])
async def test_server_and_tables_give_the_same_hits(strategy: str, hops: int) -> None:
    index, server = make_chain()
    options = {"strategy": strategy, "hops": hops}
    by_server = await retrieve(make_request(index, server, **options))
    by_tables = await retrieve(make_request(index, server, backend="sql", **options))
    assert (by_server.served_by, by_tables.served_by) == ("bolt", "sql")
    assert get_scores(by_server) == pytest.approx(get_scores(by_tables))
    assert by_server.hits and by_server.linked_seeds == by_tables.linked_seeds
    assert (by_server.notes, server.n_followed) == ((), hops)


async def test_entity_search_follows_no_relation() -> None:
    index, server = make_chain()
    output = await retrieve(make_request(index, server, strategy="entity_search"))
    assert (output.served_by, server.n_followed, len(output.hits)) == ("sql", 0, 1)


async def test_tables_serve_the_random_walk_and_the_trace_says_so() -> None:
    index, server = make_chain()
    output = await retrieve(make_request(index, server, strategy="pagerank"))
    assert (output.served_by, server.n_followed, len(output.hits)) == ("sql", 0, 3)
    [note] = output.notes
    assert "in the tables, not on the graph server (strategy `pagerank`" in note
    by_tables = await retrieve(make_request(index, None, strategy="pagerank", backend="sql"))
    assert by_tables.hits == output.hits and by_tables.notes == ()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"error": EngineUnavailable("down", code="GRAPH_UNAVAILABLE")}, "GRAPH_UNAVAILABLE: down"),
        ({"error": InvalidRequest("no label", code="CYPHER_REJECTED")}, "CYPHER_REJECTED"),
        ({"delay_s": 30.0}, "TIMED_OUT: The graph server took longer than 0.1 s."),
    ],
    ids=["down", "rejected", "slow"],
)
async def test_tables_serve_when_the_server_fails(changes: dict[str, Any], reason: str) -> None:
    index, server = make_chain()
    request = make_request(index, replace(server, **changes), timeout_s=0.2)
    output = await retrieve(request)
    tables = await retrieve(make_request(index, None, backend="sql"))
    assert output.served_by == "sql" and get_scores(output) == get_scores(tables)
    assert len(output.notes) == 1 and reason in output.notes[0]


async def test_server_is_not_asked_for_what_it_cannot_answer() -> None:
    index, server = make_chain()
    request = make_request(index, server)
    standby = copy(index)
    standby.generation = index.generation.model_copy(update={"name": "g0", "state": "standby"})
    for changed, reason in (
        (replace(request, readers=("user:ana",)), "limited to readers"),
        (replace(request, snapshot=standby), "generation g0"),
        (replace(request, graph_server=None), "NO_GRAPH_SERVER"),
    ):
        output = await retrieve(changed)
        assert output.served_by == "sql" and reason in output.notes[0]
    assert server.n_followed == 0


async def test_ids_that_the_snapshot_lacks_add_no_hits() -> None:
    index, server = make_chain()
    foreign = IndexedDocument("other", [[IndexedChild("secret")]], names=("secret",), tenant="them")
    index.add(foreign)
    server.foreign_ids = [make_entity_id("them", "name", "secret"), UUID(int=9)]
    output = await retrieve(make_request(index, server))
    assert output.served_by == "bolt" and len(output.hits) == 3
    [secret] = [view.chunk_id for view in index.views.values() if view.text == "secret"]
    server.rows = [[str(secret)], [str(UUID(int=9))], ["no id"], [None]]
    cypher = GraphQuery(cypher="MATCH (c:Chunk) WHERE c.id IN $keys RETURN c.id AS chunk_id")
    output = await retrieve(replace(make_request(index, server), cypher=cypher))
    assert output.served_by == "bolt" and len(output.hits) == 3
    assert output.notes == ("The chat model's graph query found no chunk.",)


GOOD_CYPHER = (
    "MATCH (a:Entity)-[r:RELATED]-(b:Entity) WHERE a.key IN $keys AND r.type = $type "
    "RETURN r.chunk_id AS chunk_id ORDER BY r.weight DESC LIMIT 20"
)
GOOD_REPLY = {"cypher": GOOD_CYPHER, "parameters": [{"name": "type", "value": "leases"}]}


@dataclass
class CypherWorld:
    harness: RetrievalHarness
    server: MemoryGraphServer
    fake: FakeOpenAI

    async def ask(self, question: str = RELATION_QUESTION, **options: Any) -> QueryResponse:
        request = QueryRequest.model_validate({"query": question, "profile": "graphs", **options})
        return await self.harness.make_retriever().query(LOCAL_CALLER, request, RUN_ID)


@asynccontextmanager
async def open_world(
    *replies: Any, budget: BudgetProfile | None = None, **graph: Any
) -> AsyncIterator[CypherWorld]:
    """Open a corpus with a graph server, and a model server that writes `replies`."""
    harness = make_harness()
    [lease] = [view for view in harness.index.views.values() if view.external_id == "lease"]
    harness.index.add_relation(lease.document_id, "harbour estates", "coolant pump", 0.8)
    server = MemoryGraphServer(
        [("harbour estates", "coolant pump", 0.8)], rows=[[str(lease.chunk_id)]]
    )
    harness.graph = server
    profile = GraphProfile.model_validate({"backend": "bolt", "model": "default", **graph})
    harness.profiles = [Profile(name="graphs", graph=profile, budget=budget or BudgetProfile())]
    with fake_openai() as fake:
        settings = ServerSettings(base_url=fake.url, model="fake")
        chat = OpenAIChat(settings, retry_policy=ServerRetryPolicy(first_wait_s=0, jitter_s=0))
        harness.planner = chat
        fake.queue_answers(*replies)
        try:
            yield CypherWorld(harness, server, fake)
        finally:
            await chat.close()


async def test_cypher_of_the_model_finds_the_candidates() -> None:
    prompt = PromptProfile(role="You know graphs.")
    async with open_world(GOOD_REPLY, prompt=prompt.model_dump()) as world:
        response = await world.ask()
        trace = response.trace
        channel = trace.channels["graph"]
        assert (channel.served_by, channel.returned, channel.best) == ("cypher", 1, 1.0)
        assert trace.plan is not None and trace.plan.cypher == GOOD_CYPHER
        [(tenant, query)] = world.server.queries
        assert tenant == "default" and query.parameters == {
            "type": "leases",
            "keys": ["harbour estates"],
        }
        # Counted, and its prompt is on record.
        assert (trace.model_calls, trace.models["cypher"]) == (1, "fake")
        assert [item.task for item in trace.usage] == ["cypher"]
        answered = world.harness.published_events[-1]
        assert isinstance(answered, QueryAnswered) and answered.run_record is not None
        rendered = render_prompt("cypher", prompt, "en")
        assert answered.run_record.prompts["cypher"] == rendered.sha256
        [body] = world.fake.get_request_bodies("/chat/completions")
        assert body["messages"][0]["content"] == rendered.system


BY_KEY = "MATCH (a:Entity)-[r:RELATED]-(b) WHERE a.key IN $keys "
ATTACKS: dict[str, dict[str, Any]] = {
    "write": {"cypher": BY_KEY + "SET b.name = a.name RETURN r.chunk_id AS chunk_id"},
    "delete": {"cypher": BY_KEY + "DETACH DELETE b RETURN r.chunk_id AS chunk_id"},
    "second statement": {
        "cypher": BY_KEY + "RETURN r.chunk_id AS chunk_id; MATCH (n) DETACH DELETE n"
    },
    "procedure": {"cypher": BY_KEY + "CALL dbms.listConfig() YIELD name RETURN name AS chunk_id"},
    "file": {"cypher": "LOAD CSV FROM $keys AS row RETURN row AS chunk_id"},
    "function that reads files": {"cypher": BY_KEY + "RETURN apoc.load.json(b.name) AS chunk_id"},
    "other database": {"cypher": "USE globex " + BY_KEY + "RETURN r.chunk_id AS chunk_id"},
    "union": {
        "cypher": BY_KEY + "RETURN r.chunk_id AS chunk_id UNION MATCH (c) RETURN c.id AS chunk_id"
    },
    "tenant in a pattern": {
        "cypher": "MATCH (a {tenant: $other}) WHERE a.key IN $keys RETURN a.id AS chunk_id",
        "parameters": [{"name": "other", "value": "globex"}],
    },
    "tenant as a parameter": {
        "cypher": BY_KEY + "RETURN r.chunk_id AS chunk_id",
        "parameters": [{"name": "tenant", "value": "globex"}],
    },
    "keys of its own": {
        "cypher": BY_KEY + "RETURN r.chunk_id AS chunk_id",
        "parameters": [{"name": "keys", "value": "globex"}],
    },
    "not from the names of the question": {"cypher": "MATCH (c:Chunk) RETURN c.id AS chunk_id"},
    "pattern without tenant": {
        "cypher": BY_KEY + "AND (b)--({tenant: a.key}) RETURN r.chunk_id AS chunk_id"
    },
    "unbounded path": {
        "cypher": "MATCH (a)-[rs*]-(b) WHERE a.key IN $keys RETURN b.id AS chunk_id"
    },
    "long path": {"cypher": "MATCH (a)-[*1..9]-(b) WHERE a.key IN $keys RETURN b.id AS chunk_id"},
    "other label": {"cypher": "MATCH (u:User) WHERE u.key IN $keys RETURN u.id AS chunk_id"},
    "block comment": {"cypher": BY_KEY + "/* */ RETURN r.chunk_id AS chunk_id"},
    "line comment": {"cypher": BY_KEY + "// }\nRETURN r.chunk_id AS chunk_id"},
    "string": {"cypher": BY_KEY + "AND b.name = 'x' RETURN r.chunk_id AS chunk_id"},
    "backtick": {"cypher": "MATCH (a:`Entity`) WHERE a.key IN $keys RETURN a.id AS chunk_id"},
    "unicode escape": {"cypher": BY_KEY + "\\u0053ET b.x = 1 RETURN r.chunk_id AS chunk_id"},
    "fullwidth keyword": {"cypher": BY_KEY + "\uff33\uff25\uff34 b.x = 1 RETURN b.id AS chunk_id"},
    "zero-width space": {"cypher": BY_KEY + "RET\u200bURN r.chunk_id AS chunk_id"},
    "right-to-left mark": {"cypher": BY_KEY + "\u202eRETURN r.chunk_id AS chunk_id"},
    "many parameters": {
        "cypher": BY_KEY + "RETURN r.chunk_id AS chunk_id",
        "parameters": [{"name": f"p{n}", "value": ""} for n in range(9)],
    },
    "parameter name with text": {
        "cypher": BY_KEY + "RETURN r.chunk_id AS chunk_id",
        "parameters": [{"name": "x}) DELETE n //", "value": ""}],
    },
    "too long": {"cypher": BY_KEY + " " * 10_001 + "RETURN r.chunk_id AS chunk_id"},
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
async def test_rejected_cypher_is_not_run_and_the_built_in_one_serves(
    attack: dict[str, Any],
) -> None:
    async with open_world({"parameters": [], **attack}) as world:
        trace = (await world.ask()).trace
        assert world.server.queries == []
        assert trace.channels["graph"].served_by == "bolt"
        assert trace.plan is not None and trace.plan.cypher is None
        assert trace.channels["graph"].returned == 2 and not trace.channels_failed
        assert any("gave no usable graph query" in note for note in trace.notes)
        assert trace.model_calls == 1


async def test_query_without_chunk_ids_leaves_the_built_in_one() -> None:
    async with open_world({"cypher": BY_KEY + "RETURN b.name AS name", "parameters": []}) as world:
        world.server.columns = ["name"]
        trace = (await world.ask()).trace
        assert trace.channels["graph"].served_by == "bolt"
        assert any("has no column chunk_id" in note for note in trace.notes)


async def test_failed_model_leaves_the_built_in_query() -> None:
    async with open_world() as world:
        world.fake.fail(times=9, status=503)
        trace = (await world.ask()).trace
        assert trace.channels["graph"].served_by == "bolt"
        assert any("the built-in one was used" in note for note in trace.notes)


@pytest.mark.parametrize(
    ("question", "options"),
    [
        ("How much does the replacement of the bearing cost?", {}),
        (RELATION_QUESTION, {"graph": {"model": "rules"}}),
        (RELATION_QUESTION, {"graph": {"backend": "sql"}}),
        (RELATION_QUESTION, {"graph": {"strategy": "entity_search"}}),
        (RELATION_QUESTION, {"graph": {"strategy": "pagerank"}}),
        (RELATION_QUESTION, {"request": {"mode": "vector"}}),
        # The only call that is left is the answer's.
        (RELATION_QUESTION, {"budget": BudgetProfile(calls=1)}),
    ],
    ids=["no relation", "rules", "sql", "no hops", "random walk", "no graph", "last call"],
)
async def test_model_writes_cypher_only_where_it_is_used(
    question: str, options: dict[str, Any]
) -> None:
    async with open_world(budget=options.get("budget"), **options.get("graph", {})) as world:
        await world.ask(question, **options.get("request", {}))
        assert world.fake.requests == [] and world.server.queries == []


async def test_caller_limited_to_readers_is_served_by_the_tables() -> None:
    async with open_world() as world:
        caller = replace(LOCAL_CALLER, readers=("user:ana",))
        request = QueryRequest(query=RELATION_QUESTION, profile="graphs")
        response = await world.harness.make_retriever().query(caller, request, RUN_ID)
        assert response.trace.channels["graph"].served_by == "sql"
        assert world.fake.requests == [] and world.server.n_followed == 0
        assert any("limited to readers" in note for note in response.trace.notes)
