"""A question whose relations are followed on a graph server (ArcadeDB)."""

from __future__ import annotations

from anabranch.config.model_settings import ModelSettings
from anabranch.config.overrides import Overrides
from anabranch.config.settings import GraphSettings, Settings
from sql.pool import connect
from tests.fakes.openai_server import fake_openai
from tests.support.api_world import run_system
from tests.support.bolt_server import AUTH, load_graph

NOTE = "Ingrid Voss founded Norte Pescas Ltda. Norte Pescas Ltda acquired Weir House Ltd in 2021."
QUESTION = "How is Ingrid Voss connected to Weir House Ltd?"
ON_SERVER = {"graph": {"backend": "bolt"}}


def make_graph_settings(bolt_url: str) -> GraphSettings:
    return GraphSettings(
        bolt_url=bolt_url, user=AUTH[0], password=AUTH[1], databases={"default": "shared"}
    )


async def copy_graph(database: str, bolt_url: str) -> None:
    connection = await connect(database, name="graph copy")
    try:
        await load_graph(connection, bolt_url, "default")
    finally:
        await connection.close()


async def test_question_is_served_by_the_graph_server(
    settings: Settings, database: str, overrides: Overrides, bolt_url: str
) -> None:
    settings = settings.model_copy(update={"graph": make_graph_settings(bolt_url)})
    async with run_system(settings, database, overrides) as world:
        await world.wait_until_all_stages_done(await world.ingest(NOTE))
        await copy_graph(database, bolt_url)
        by_tables = (await world.ask(QUESTION))["trace"]["channels"]["graph"]
        by_server = (await world.ask(QUESTION, overrides=ON_SERVER))["trace"]["channels"]["graph"]
        assert (by_tables["served_by"], by_server["served_by"]) == ("sql", "bolt")
        assert by_server["returned"] == by_tables["returned"] > 0
        assert abs(by_server["best"] - by_tables["best"]) < 1e-6
        # Files alone set the prompt of the chat model.
        refused = await world.http.post(
            "/v1/query",
            json={"query": QUESTION, "overrides": {"graph": {"prompt": {"template": "x"}}}},
        )
        assert (refused.status_code, refused.json()["code"]) == (422, "FIXED_SETTING")


async def test_only_checked_cypher_of_the_model_reaches_the_server(
    settings: Settings, database: str, overrides: Overrides, bolt_url: str
) -> None:
    pattern = "MATCH (a:Entity)-[r:RELATED]-(b:Entity) WHERE a.key IN $keys "
    honest = pattern + "RETURN r.chunk_id AS chunk_id ORDER BY r.weight DESC LIMIT 5"
    attack = pattern + "SET b.name = a.name RETURN r.chunk_id AS chunk_id"
    chosen = {"graph": {"backend": "bolt", "model": "default"}}
    with fake_openai() as fake:
        plan = ModelSettings(base_url=fake.url, model="fake")
        changes = {"graph": make_graph_settings(bolt_url), "plan": plan}
        async with run_system(settings.model_copy(update=changes), database, overrides) as world:
            await world.wait_until_all_stages_done(await world.ingest(NOTE))
            await copy_graph(database, bolt_url)
            for cypher, served_by in ((attack, "bolt"), (honest, "cypher")):
                fake.queue_answers({"cypher": cypher, "parameters": []})
                trace = (await world.ask(QUESTION, overrides=chosen))["trace"]
                assert trace["channels"]["graph"]["served_by"] == served_by
                assert trace["channels"]["graph"]["returned"] > 0
                assert (trace["models"]["cypher"], trace["model_calls"]) == ("fake", 1)
                is_rejected = any("“SET”" in note for note in trace["notes"])
                assert is_rejected == (cypher == attack)


async def test_question_is_served_by_the_tables_without_a_server(
    settings: Settings, database: str, overrides: Overrides
) -> None:
    async with run_system(settings, database, overrides) as world:
        await world.wait_until_all_stages_done(await world.ingest(NOTE))
        answer = await world.ask(QUESTION, overrides=ON_SERVER)
        assert answer["trace"]["channels"]["graph"]["served_by"] == "sql"
        assert any("NO_GRAPH_SERVER" in note for note in answer["trace"]["notes"])
