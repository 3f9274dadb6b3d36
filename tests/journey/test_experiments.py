"""Two profiles answer shares of the live questions, and feedback decides between them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from schemas.experiments import Experiment
from services.experiments import build_report
from sql.catalog.profiles import RUNNING_TTL_S
from tests.support.api_world import ApiWorld
from tests.support.eventually import eventually

NOTE = "The ferry to Corvo leaves at nine. The ferry to Faro leaves at ten."
EXPERIMENT = Experiment(
    experiment_id=UUID(int=1),
    control="default",
    candidate="rrf",
    share=0.5,
    min_effect=0.1,
    started_at=datetime(2026, 1, 1, tzinfo=UTC),
)


async def test_experiment_divides_questions_and_counts_feedback(world: ApiWorld) -> None:
    await world.ingest_until_searchable(NOTE)
    request = {"candidate": "rrf", "share": 0.5, "min_effect": 0.5}
    # Two at the same moment: the second finds the first.
    both = [world.http.post("/v1/experiments", json=request) for _ in range(2)]
    started, refused = sorted(await asyncio.gather(*both), key=lambda one: one.status_code)
    assert started.status_code == 201, started.text
    assert refused.json()["code"] == "EXPERIMENT_RUNNING", refused.text
    path = f"/v1/experiments/{started.json()['experiment_id']}"
    questions = [f"When does ferry {number} to Corvo leave?" for number in range(12)]
    profiles: dict[str, str] = {}
    useful = {"default": 0, "rrf": 0}
    for question in questions:
        answer = await world.ask(question)
        profile = profiles[question] = answer["trace"]["profile"]
        useful[profile] += profile == "rrf"
        feedback = {"run_id": answer["run_id"], "useful": profile == "rrf"}
        assert (await world.http.post("/v1/feedback", json=feedback)).status_code == 202
    counts = {name: list(profiles.values()).count(name) for name in useful}
    assert min(counts.values()) > 0
    # The same arm for the same question, and for all of a conversation.
    again = await world.ask(questions[0].upper())
    turn = {"role": "user", "text": questions[0]}
    later = await world.ask("And the one to Faro?", history=[turn])
    assert again["trace"]["profile"] == later["trace"]["profile"] == profiles[questions[0]]
    # A question that names its profile takes no part, even if the answer is cached.
    named = await world.ask(questions[0], profile=profiles[questions[0]])
    run = await world.http.post("/v1/runs", json={"query": questions[0]})
    counts[profiles[questions[0]]] += 3

    async def fetch_report() -> dict[str, Any]:
        return dict(await world.fetch_json(path))

    def has_all(report: dict[str, Any]) -> bool:
        arms = report["arms"]
        runs = {arm["profile"]: arm["runs"] for arm in arms}
        return runs == counts and sum(arm["useful"]["n"] for arm in arms) == len(questions)

    report = await eventually(fetch_report, has_all, what="the arms of all runs")
    recorded = await world.fetch_json(f"/v1/runs/{run.json()['run_id']}")
    assert recorded["request"]["profile"] == profiles[questions[0]] and named["answer"]
    assert {arm["profile"]: arm["useful"]["value"] for arm in report["arms"]} == {
        "default": 0.0,
        "rrf": 1.0,
    }
    assert report["difference"]["low"] > 0 and report["verdict"] == "collecting"
    for body, code in (
        (request, "EXPERIMENT_RUNNING"),
        ({"candidate": "none"}, "UNKNOWN_PROFILE"),
        ({"candidate": "default"}, "INVALID_REQUEST"),
    ):
        refused = await world.http.post("/v1/experiments", json=body)
        assert (refused.status_code, refused.json()["code"]) == (422, code)
    forged = {"query": questions[0], "_arm": {"experiment_id": str(UUID(int=1)), "arm": "control"}}
    assert (await world.http.post("/v1/query", json=forged)).status_code == 422
    await _set_candidate(world, "deleted")
    of_candidate = next(question for question in questions if profiles[question] == "rrf")
    assert (await world.ask(of_candidate))["trace"]["profile"] == "default"
    await _set_candidate(world, "rrf")
    stopped = (await world.http.post(f"{path}/stop", json={})).json()
    assert stopped["stopped_at"] and (await world.fetch_json(path))["stopped_at"]
    assert {(await world.ask(question))["trace"]["profile"] for question in questions[:6]} == {
        "default"
    }


async def _set_candidate(world: ApiWorld, profile: str) -> None:
    query = "update experiments set body = body || $1"
    await world.worker.storage.pool.execute(query, {"candidate": profile})
    await asyncio.sleep(RUNNING_TTL_S + 0.1)


@pytest.mark.parametrize(
    ("judged", "useful", "verdict"),
    [
        ((100, 100), (50, 90), "collecting"),
        ((400, 400), (200, 300), "candidate"),
        ((400, 400), (300, 200), "control"),
        ((400, 400), (200, 204), "no_difference"),
        ((400, 0), (200, 0), "collecting"),
    ],
)
def test_verdict_waits_for_the_answers_that_the_effect_needs(
    judged: tuple[int, int], useful: tuple[int, int], verdict: str
) -> None:
    counts = {
        arm: {"runs": n, "refused": 0, "judged": n, "useful": k}
        for arm, n, k in zip(("control", "candidate"), judged, useful, strict=True)
    }
    report = build_report(EXPERIMENT, counts)
    assert report.verdict == verdict
    # 2 (1.96 + .842)² × .25 / .1².
    assert report.needed == 393
    assert report.missing["candidate"] == max(0, 393 - judged[1])


def test_interval_of_the_difference_is_newcombes() -> None:
    # Newcombe (1998), example (a): 56 of 70 and 48 of 80.
    counts = {
        "control": {"runs": 80, "refused": 0, "judged": 80, "useful": 48},
        "candidate": {"runs": 70, "refused": 0, "judged": 70, "useful": 56},
    }
    difference = build_report(EXPERIMENT, counts).difference
    assert difference is not None
    assert (difference.value, difference.low, difference.high) == pytest.approx(
        (0.2, 0.0524, 0.3339), abs=2e-4
    )


def test_share_of_the_candidate_is_kept() -> None:
    experiment = EXPERIMENT.model_copy(update={"share": 0.2})
    arms = [experiment.assign(f"question {number}").arm for number in range(5000)]
    assert 0.18 < arms.count("candidate") / len(arms) < 0.22
