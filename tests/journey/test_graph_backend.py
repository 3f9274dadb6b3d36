"""A question whose relations are followed on a graph server (ArcadeDB)."""

from __future__ import annotations

from anabranch.config.overrides import Overrides
from anabranch.config.settings import GraphSettings, Settings
from sql.pool import connect
from tests.support.api_world import run_system
from tests.support.bolt_server import AUTH, load_graph
from tests.support.eventually import eventually

NOTE = "Ingrid Voss founded Norte Pescas Ltda. Norte Pescas Ltda acquired Weir House Ltd in 2021."
QUESTION = "How is Ingrid Voss connected to Weir House Ltd?"
ON_SERVER = {"graph": {"backend": "bolt"}}


async def test_question_is_served_by_the_graph_server(
    settings: Settings, database: str, overrides: Overrides, bolt_url: str
) -> None:
    graph = GraphSettings(
        bolt_url=bolt_url, user=AUTH[0], password=AUTH[1], databases={"default": "shared"}
    )
    settings = settings.model_copy(update={"graph": graph})
    async with run_system(settings, database, overrides) as world:
        await world.wait_until_all_stages_done(await world.ingest(NOTE))
        await eventually(lambda: world.fetch_json("/v1/entities"), lambda page: page["items"])
        connection = await connect(database, name="graph copy")
        try:
            await load_graph(connection, bolt_url, "default")
        finally:
            await connection.close()
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


async def test_question_is_served_by_the_tables_without_a_server(
    settings: Settings, database: str, overrides: Overrides
) -> None:
    async with run_system(settings, database, overrides) as world:
        await world.wait_until_all_stages_done(await world.ingest(NOTE))
        answer = await world.ask(QUESTION, overrides=ON_SERVER)
        assert answer["trace"]["channels"]["graph"]["served_by"] == "sql"
        assert any("NO_GRAPH_SERVER" in note for note in answer["trace"]["notes"])
