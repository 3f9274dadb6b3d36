"""Examine and calibrate a generation over HTTP; both survive a rebuild of the tables."""

from __future__ import annotations

from itertools import count
from typing import Any

from anabranch.composition.storage import recover_database
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from sql.catalog.exams import PgExams
from sql.index.generations import PgCalibrations
from tests.support.api_world import ApiWorld, run_system
from tests.support.database_copies import copy_keys, copy_log
from tests.support.eventually import eventually
from tests.support.generation_copies import copy_generation

TOWNS = ("Arden", "Belmar", "Corvo", "Dunmore", "Elvas", "Farrow", "Gorse", "Hadley")
RESULT_COUNTS = count(1)
CLAUSE = (
    '# Lease of {town}\n\nIn {town}, "Quiet Hours of {town}" means the time after nine. '
    "The tower of {town} was finished by masons on {day} March 1950. "
    "The rent of the hall in {town} comes to EUR {day},250.00 for each quarter."
)


async def ingest_leases(world: ApiWorld) -> None:
    for day, town in enumerate(TOWNS, 11):
        await world.ingest_until_searchable(
            CLAUSE.format(town=town, day=day), external_id=town, collection="leases"
        )


async def post(world: ApiWorld, path: str, **body: Any) -> dict[str, Any]:
    response = await world.http.post(path, json=body)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def test_exam_is_repeatable_and_tells_answerable_from_hidden(world: ApiWorld) -> None:
    await ingest_leases(world)
    report = await post(world, "/v1/exams", questions=12, seed=4)
    assert (report["questions"], report["failed"], report["generation"]) == (12, 0, "g1")
    overall = report["overall"]
    assert overall["passage_first"]["n"] == 6 and overall["correctly_refused"]["n"] == 6
    # The right passage says the words of its question; without its document another town's is
    # no answer, since the town's name is missing.
    assert overall["passage_first"]["value"] >= 0.8
    assert overall["correctly_refused"]["value"] >= 0.8
    assert set(report["collections"]) == {"leases"}
    again = await post(world, "/v1/exams", questions=12, seed=4)
    assert again["overall"] == report["overall"] and again["kinds"] == report["kinds"]


async def test_learned_thresholds_apply_to_their_scores_and_are_rebuilt_from_the_log(
    settings: Settings, database: str, other_database: str, overrides: Overrides
) -> None:
    async with run_system(settings, database, overrides) as world:
        await ingest_leases(world)
        assert await ask_for_calibration(world) == "uncalibrated"
        calibration = await post(world, "/v1/calibrations", questions=24, min_questions=10)
        assert calibration["basis"] == "exam" and calibration["trim"] is not None
        before = await fetch_results(world)
        # No text that an erasure would have to find.
        assert not any(town in str(before) for town in TOWNS)
        await copy_log(database, other_database)
        await copy_keys(database, other_database)
        await eventually(lambda: ask_for_calibration(world), lambda basis: basis == "exam")
        pool = world.worker.storage.pool
        assert await PgCalibrations(pool).fetch("other", "g1") is None
        await pool.execute("update calibrations set scores = 'of another model'")
        await eventually(lambda: ask_for_calibration(world), lambda basis: basis == "uncalibrated")
    assert await recover_database(settings, other_database) is not None
    async with run_system(settings, other_database, overrides) as world:
        assert await fetch_results(world) == before


async def ask_for_calibration(world: ApiWorld) -> str:
    """Return the basis of the thresholds of an answer that no earlier one is cached for."""
    trace = (await world.ask("How much is the rent of the hall in Corvo?", k=next(RESULT_COUNTS)))[
        "trace"
    ]
    assert trace["calibrated"] is (trace["calibration"] == "exam")
    return str(trace["calibration"])


async def fetch_results(world: ApiWorld) -> tuple[Any, Any]:
    pool = world.worker.storage.pool
    exams = await eventually(lambda: PgExams(pool).list_exams("default", 10))
    calibration = await eventually(lambda: PgCalibrations(pool).fetch("default", "g1"))
    assert calibration is not None and calibration.basis == "exam"
    return exams, calibration


async def test_generation_without_calibration_is_promoted_by_force_only(world: ApiWorld) -> None:
    await ingest_leases(world)
    await copy_generation(world.worker.storage.pool, "g1", "g2")
    refused = await world.http.post("/v1/generations/g2/promote", json={})
    assert (refused.status_code, refused.json()["code"]) == (409, "NOT_CALIBRATED")
    assert "anabranch calibrate --generation g2" in refused.json()["remedy"]
    calibration = await post(world, "/v1/calibrations", generation="g2", questions=12)
    assert calibration["basis"] == "uncalibrated", "of too few questions"
    promoted = await post(world, "/v1/generations/g2/promote")
    assert (promoted["promoted"], promoted["generation"]) == (True, "g2")


async def test_exam_of_unknown_generation_or_profile_names_it(world: ApiWorld) -> None:
    await world.ingest_until_searchable("Herons wait.", external_id="heron")
    for path in ("/v1/exams", "/v1/calibrations"):
        unknown = await world.http.post(path, json={"generation": "g9"})
        assert (unknown.status_code, unknown.json()["code"]) == (404, "NO_SUCH_GENERATION")
        profile = await world.http.post(path, json={"profile": "fast"})
        assert (profile.status_code, profile.json()["code"]) == (422, "UNKNOWN_PROFILE")
