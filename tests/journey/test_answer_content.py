"""Answers quote the author's text, with dates and paths that the documents state."""

from __future__ import annotations

import json
from typing import Any

from anabranch.config.overrides import Overrides
from anabranch.config.settings import GraphSettings, ModelSettings, Settings
from sql.database import connect
from tests.fakes.openai_server import fake_openai
from tests.support.api_world import ApiWorld, run_system
from tests.support.bolt_server import AUTH, load_graph
from tests.support.eventually import eventually
from tests.support.lineage import fetch_lineage, rerun_query, wait_until_recorded


async def test_parser_comments_are_not_quoted(world: ApiWorld) -> None:
    receipt = await world.ingest_until_searchable("Name;Qty\nApple;3\nPear;5\n", "c.csv")
    answer = await world.ask("What are the columns Name and Qty?")
    assert not [
        citation["quote"] for citation in answer["citations"] if "Columns" in citation["quote"]
    ]
    markdown = (await world.http.get(f"/v1/documents/{receipt['document_id']}/markdown")).text
    assert markdown.startswith("<!-- 2 rows, 2 columns. Columns: Name, Qty. -->")


async def test_untitled_text_gets_external_id_or_sentence_as_title(world: ApiWorld) -> None:
    for body in (
        {"text": "The gate code of the north gate is 1111.", "external_id": "gate-note"},
        {"text": "The pump in hall four was replaced in May."},
    ):
        response = await world.http.post("/v1/ingest", json=body)
        assert response.status_code == 202
        assert (await world.wait_until_final(response.json()))["state"] == "searchable"
    found = [
        *await world.search("gate code of the north gate"),
        *await world.search("pump in hall four"),
    ]
    assert {result["title"] for result in found} >= {
        "gate-note",
        "The pump in hall four was replaced in May.",
    }
    assert "document.md" not in {result["title"] for result in found}


LETTER = "---\ndate: 2019-05-04\n---\n# Letter\n\nThe ferry to Cacilhas leaves pier six at noon.\n"


async def test_found_date_is_shown_and_filters(world: ApiWorld) -> None:
    found = await world.ingest_until_searchable(LETTER, external_id="found")
    stated = await world.ingest_until_searchable(
        LETTER, external_id="stated", document_date="2021-01-02"
    )
    plain = await world.ingest_until_searchable(
        "The ferry to Cacilhas has no timetable.", external_id="plain"
    )
    dates = [
        (await world.fetch_json(f"/v1/documents/{receipt['document_id']}"))["document_date"]
        for receipt in (found, stated, plain)
    ]
    assert dates == ["2019-05-04", "2021-01-02", None]
    for date_from, date_to, names in (
        ("2019-05-04", "2019-05-04", {"found"}),
        ("2021-01-02", "2021-01-02", {"stated"}),
        ("2022-01-01", None, {"plain"}),
    ):
        filters = {"date_from": date_from, "date_to": date_to}
        hits = await world.search("ferry to Cacilhas", filters=filters)
        assert {hit["external_id"] for hit in hits} == names


QUESTION = "How is Ada Brandt connected to Lund Ferries?"
NOTES = {
    "people": "# People\n\nAda Brandt worked at Kestrel Yard for nine winters.\n",
    "yard": (
        "# Yard\n\nKestrel Yard built the hulls for Lund Ferries. "
        "Kestrel Yard was founded on 4 May 1981.\n"
    ),
}


async def ingest_notes(world: ApiWorld) -> dict[str, str]:
    """Return the document ids by external id."""
    ids = {}
    for name, text in NOTES.items():
        receipt = await world.ingest(text, external_id=name)
        await world.wait_until_all_stages_done(receipt)
        ids[name] = receipt["document_id"]
    return ids


async def test_path_is_cited_verified_and_rerun(world: ApiWorld) -> None:
    await ingest_notes(world)
    answer = await world.ask(QUESTION)
    path = [(hop["subject"], hop["predicate"], hop["object"]) for hop in answer["relation_path"]]
    assert path == [
        ("Ada Brandt", "worked_at", "Kestrel Yard"),
        ("Kestrel Yard", "built", "Lund Ferries"),
    ]
    assert [hop["citations"] for hop in answer["relation_path"]] == [[1], [2]]
    assert [citation["external_id"] for citation in answer["citations"][:2]] == ["people", "yard"]
    assert answer["answer"].startswith("Ada Brandt worked at Kestrel Yard for nine winters. [1]")
    await wait_until_recorded(world, answer["run_id"])
    rerun = await rerun_query(world, answer["run_id"])
    lineage = await fetch_lineage(world, answer["run_id"])
    assert rerun["same"], rerun["differences"]
    assert lineage["verified"], lineage["broken"]


async def test_graph_facts_and_claims_are_read_in_graph_and_hybrid_mode(world: ApiWorld) -> None:
    await ingest_notes(world)
    for mode in ("graph", "hybrid", "vector"):
        answer = await world.ask("What did Kestrel Yard build?", mode=mode)
        facts = {(fact["kind"], fact["object"]): fact for fact in answer["graph_facts"]}
        assert (("relation", "Lund Ferries") in facts) == (mode != "vector"), mode
        for fact in facts.values():
            assert fact["quote"] in NOTES[fact["external_id"]]
            assert fact["subject"] in fact["quote"] and fact["object"] in fact["quote"]
        assert (("claim", "4 May 1981") in facts) == (mode != "vector"), facts


async def test_graph_around_an_answer_is_summarized_in_cited_bullets(
    settings: Settings, database: str, overrides: Overrides
) -> None:
    async def summarize(world: ApiWorld, answer: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        await wait_until_recorded(world, answer["run_id"])
        body = {"run_id": answer["run_id"]}
        response = await world.http.post("/v1/graph/summary", json=body)
        return response.status_code, response.json()

    question = "What did Kestrel Yard build?"
    with fake_openai() as fake:
        chat = ModelSettings(base_url=fake.url, model="fake")
        rules = settings.extract.model_copy(update={"engine": "rules"})
        with_chat = settings.model_copy(update={"chat": chat, "extract": rules})
        async with run_system(with_chat, database, overrides) as world:
            await ingest_notes(world)
            answer = await world.ask(question, mode="hybrid")
            [fact] = [fact for fact in answer["graph_facts"] if fact["object"] == "Lund Ferries"]
            good = "Kestrel Yard built hulls for Lund Ferries [1]."
            invented = ["It built hulls.", "Kestrel Yard built 40 hulls.", "Lund Ferries sank."]
            bullets = [{"text": text, "citations": [fact["n"]]} for text in (good, *invented[:2])]
            bullets.append({"text": invented[2], "citations": [99]})
            fake.queue_answers({"bullets": bullets})
            status, summary = await summarize(world, answer)
            assert (status, summary["citations"]) == (200, [fact])
            kept = {"text": good.replace(" [1]", ""), "citations": [fact["n"]]}
            assert summary["bullets"] == [kept] and "3" in summary["warnings"][0]
            [usage] = summary["usage"]
            assert (usage["task"], summary["model_calls"], summary["cached"]) == (
                "summary",
                1,
                False,
            )
            assert summary["tokens"] == usage["input_tokens"] + usage["output_tokens"] > 0
            sent = json.loads(fake.requests[-1][1]["messages"][-1]["content"])
            assert {line["n"] for line in sent["relations"] + sent["claims"]} == {
                line["n"] for line in answer["graph_facts"]
            }
            # An equal request calls no model, until a document changes.
            _, again = await summarize(world, answer)
            assert (again["bullets"], again["cached"], again["model_calls"]) == ([kept], True, 0)
            await world.ingest_until_searchable("Another note.")
            fake.queue_answers({"bullets": []})
            assert (await summarize(world, answer))[1]["bullets"] == []
            for options, expected in (
                ({"mode": "hybrid", "overrides": {"budget": {"calls": 0}}}, "BUDGET_EXCEEDED"),
                ({"mode": "vector"}, "NO_GRAPH_FACTS"),
            ):
                status, problem = await summarize(
                    world, await world.ask("What was Kestrel Yard founded on?", **options)
                )
                assert (status, problem["code"]) == (422, expected)
    async with run_system(settings, database, overrides) as world:
        status, problem = await summarize(world, answer)
        assert (status, problem["code"]) == (422, "NO_CHAT_MODEL")
        assert "ANABRANCH_CHAT__BASE_URL" in problem["remedy"]


async def test_erasing_a_document_clears_runs_that_its_relation_was_offered_to(
    world: ApiWorld,
) -> None:
    ids = await ingest_notes(world)
    answer = await world.ask(QUESTION, k=1, return_context=False, mode="graph")
    assert answer["graph_facts"] == []
    run_id = answer["run_id"]
    await wait_until_recorded(world, run_id)
    response = await world.http.post(
        "/v1/erasures", json={"scope": "document", "name": ids["yard"]}
    )
    assert response.status_code == 202, response.text

    async def fetch_run() -> Any:
        return (await world.http.get(f"/v1/runs/{run_id}")).text

    text = await eventually(fetch_run, lambda body: "Lund" not in body, what="a cleared run")
    assert "Kestrel" not in text


NOTE = "Ingrid Voss founded Norte Pescas Ltda. Norte Pescas Ltda acquired Weir House Ltd in 2021."
PATH_QUESTION = "How is Ingrid Voss connected to Weir House Ltd?"
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
        by_tables = (await world.ask(PATH_QUESTION))["trace"]["channels"]["graph"]
        by_server = (await world.ask(PATH_QUESTION, overrides=ON_SERVER))["trace"]["channels"][
            "graph"
        ]
        assert (by_tables["served_by"], by_server["served_by"]) == ("sql", "bolt")
        assert by_server["returned"] == by_tables["returned"] > 0
        assert abs(by_server["best"] - by_tables["best"]) < 1e-6
        # Files alone set the prompt of the chat model.
        refused = await world.http.post(
            "/v1/query",
            json={"query": PATH_QUESTION, "overrides": {"graph": {"prompt": {"template": "x"}}}},
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
                trace = (await world.ask(PATH_QUESTION, overrides=chosen))["trace"]
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
        answer = await world.ask(PATH_QUESTION, overrides=ON_SERVER)
        assert answer["trace"]["channels"]["graph"]["served_by"] == "sql"
        assert any("NO_GRAPH_SERVER" in note for note in answer["trace"]["notes"])
