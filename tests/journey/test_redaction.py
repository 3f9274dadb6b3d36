"""Attack redaction over HTTP: identifiers in responses, streams, stored runs, tables and logs."""

from __future__ import annotations

from typing import Any

from structlog.testing import capture_logs

from retrieval.redaction import MASK
from sql.database import close_pool, open_pool
from tests.support.api_world import ApiWorld
from tests.support.lineage import fetch_lineage, rerun_query, wait_until_recorded

SSN, EMAIL, PHONE = "536-22-8714", "marta.quill@pilots.example.com", "(415) 555-2671"
NOTE = (
    "# Pilots\n\nThe social security number of the pilot Marta Quill is "
    f"{SSN}. The e-mail address of Marta Quill is {EMAIL}. Her phone number is {PHONE}.\n"
)
QUESTIONS = (
    "What is the social security number of the pilot Marta Quill?",
    f"Whose e-mail address is {EMAIL}?",
    f"Whose phone number is {PHONE}?",
)


def find_identifiers(text: str) -> list[str]:
    pieces = ("22-8714", "marta.quill", "555-2671")
    return [item for item in (SSN, EMAIL, PHONE, *pieces) if item in text]


async def ask_all(world: ApiWorld) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the texts of all responses, and the responses that are no streams."""
    texts, responses = [], []
    for question in QUESTIONS:
        body = {"query": question, "profile": "redacted", "explain": True}
        # The second answer comes from the cache.
        for path, more in (
            ("/v1/query", {"debug": True}),
            ("/v1/query", {"debug": True}),
            ("/v1/query", {"stream": True}),
            ("/v1/search", {}),
        ):
            response = await world.http.post(path, json={**body, **more})
            assert response.status_code == 200, response.text
            texts.append(response.text)
            responses += [] if "stream" in more else [response.json()]
    return texts, responses


async def test_identifiers_stay_in_the_documents(world: ApiWorld, database: str) -> None:
    await world.ingest_until_searchable(NOTE, external_id="pilots")
    with capture_logs() as logged:
        seen, responses = await ask_all(world)
        for response in responses:
            await wait_until_recorded(world, response["run_id"])
    assert responses[1]["trace"]["cached"] and logged
    assert responses[0]["redacted"] > 0 and MASK * len(SSN) in responses[0]["answer"]
    run_id = responses[0]["run_id"]
    rerun, lineage = await rerun_query(world, run_id), await fetch_lineage(world, run_id)
    assert rerun["same"] and lineage["verified"], (rerun["differences"], lineage["broken"])
    pool = await open_pool(database, size=1, name="attack")
    seen += [str(row) for row in await pool.fetch("select r::text from runs r")]
    await close_pool(pool)
    seen += [str(rerun), str(lineage), str(logged)]
    assert find_identifiers("\n".join(seen)) == []


async def test_identifiers_are_shown_without_redaction(world: ApiWorld) -> None:
    await world.ingest_until_searchable(NOTE, external_id="pilots")
    answer = await world.ask(QUESTIONS[0])
    assert SSN in answer["citations"][0]["quote"] and answer["redacted"] == 0
