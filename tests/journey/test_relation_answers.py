"""A question about a relation is answered by the path that the graph knows, each step cited."""

from __future__ import annotations

from typing import Any

from tests.support.api_world import ApiWorld
from tests.support.eventually import eventually
from tests.support.lineage import fetch_lineage, rerun_query, wait_until_recorded

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
