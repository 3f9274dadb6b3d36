"""Where workers are killed, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults import killed_workers
from tests.faults.await_points import get_site, get_stage
from tests.faults.killed_workers import KillPlan, Victims
from tests.faults.worker import DIED, REACHED
from tests.support.null_worker import READY

FETCH, STORE = "sql/log/event_log.py:10", "sql/ledger.py:7"
POINTS = [
    f"{stage}|{site} execute|{side}"
    for stage in ("chunk", "embed")
    for site in (FETCH, STORE)
    for side in ("sent", "received")
]
EMBED_POINTS = POINTS[4:]


class FakeFleet:
    """Workers that reach `points` in this order, and die at the first that is not spared."""

    def __init__(self, points: Sequence[str]) -> None:
        self.points = points
        self.spared: list[frozenset[str]] = []
        self.died_at: list[str | None] = []
        self.stopped_workers: list[Any] = []

    def spawn_worker(
        self, stages: Sequence[str], *, notes_await_points: bool, spared: frozenset[str]
    ) -> Any:
        assert notes_await_points
        notes: list[str] = [READY]
        for point in self.points:
            if get_stage(point) in stages:
                notes.append(REACHED + point)
                if spared.isdisjoint((point, get_site(point), get_stage(point))):
                    notes.append(DIED + point)
                    break
        died = notes[-1].startswith(DIED)
        self.spared.append(spared)
        self.died_at.append(notes[-1].removeprefix(DIED) if died else None)
        return SimpleNamespace(
            process=SimpleNamespace(poll=lambda: -9 if died else None), note_lines=notes
        )

    def stop_worker(self, worker: Any, signal_number: int) -> None:
        self.stopped_workers.append(worker)


def make_victims(fleet: FakeFleet, plan: KillPlan, *stages: str, seed: int = 7) -> Victims:
    return Victims(SimpleNamespace(fleet=fleet), plan, stages, Random(seed))  # type: ignore[arg-type]


def run_rounds(victims: Victims, count: int) -> None:
    for _ in range(count):
        victims.check_worker()


def test_each_site_is_struck_before_any_is_struck_twice() -> None:
    plan = KillPlan(is_full=True, reached=set(EMBED_POINTS))
    fleet = FakeFleet(EMBED_POINTS)
    run_rounds(make_victims(fleet, plan, "embed"), 4)
    assert fleet.died_at == [EMBED_POINTS[0], EMBED_POINTS[2]]


def test_site_struck_in_one_stage_is_spared_in_another() -> None:
    plan = KillPlan(is_full=True, reached=set(POINTS))
    fleet = FakeFleet(POINTS)
    run_rounds(make_victims(fleet, plan, "chunk"), 2)
    run_rounds(make_victims(fleet, plan, "embed"), 2)
    assert [get_site(point) for point in fleet.died_at if point] == [FETCH, STORE]


def test_no_point_is_struck_twice_while_a_site_of_another_stage_is_missing() -> None:
    plan = KillPlan(is_full=True, reached={*EMBED_POINTS, "chunk|sql/rare.py:1 fetch|sent"})
    fleet = FakeFleet(EMBED_POINTS)
    run_rounds(make_victims(fleet, plan, "embed"), 9)
    assert fleet.died_at == [EMBED_POINTS[0], EMBED_POINTS[2], None]


def test_every_point_is_struck_and_then_a_worker_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(killed_workers, "REPLACE_AFTER_S", -1.0)
    plan = KillPlan(is_full=True, reached=set(EMBED_POINTS))
    fleet = FakeFleet(EMBED_POINTS)
    victims = make_victims(fleet, plan, "embed")
    run_rounds(victims, 100)
    assert plan.struck == set(EMBED_POINTS) and plan.is_complete(["embed"])
    assert sorted(point for point in fleet.died_at if point) == sorted(EMBED_POINTS)
    assert fleet.died_at[-1] is None and victims.n_killed == len(EMBED_POINTS)


def test_seed_determines_the_points() -> None:
    def choose(seed: int) -> frozenset[str]:
        plan = KillPlan(is_full=True, reached=set(EMBED_POINTS), struck=set(EMBED_POINTS[::2]))
        plan.reached |= {f"embed|{FETCH} fetch{number}|sent" for number in range(20)}
        return plan.choose_spared(["embed"], Random(seed))

    assert choose(7) == choose(7) != choose(8)


def test_worker_that_waits_for_a_rare_site_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(killed_workers, "REPLACE_AFTER_S", -1.0)
    plan = KillPlan(is_full=True, reached=set(EMBED_POINTS))
    fleet = FakeFleet(EMBED_POINTS[:2])  # never reaches the second site
    run_rounds(make_victims(fleet, plan, "embed"), 9)
    assert fleet.died_at == [EMBED_POINTS[0], None]
    assert not plan.is_complete(["embed"]) and plan.targets_sites


def test_point_that_only_the_struck_run_reached_counts_as_reached() -> None:
    plan = KillPlan(is_full=True, reached={EMBED_POINTS[0]})
    run_rounds(make_victims(FakeFleet(EMBED_POINTS), plan, "embed"), 8)
    assert EMBED_POINTS[2] in plan.reached and EMBED_POINTS[2] in plan.struck


def test_short_run_kills_one_worker_in_each_stage() -> None:
    plan = KillPlan(is_full=False, reached=set(POINTS))
    fleet = FakeFleet(POINTS)
    victims = make_victims(fleet, plan, "chunk", "embed")
    run_rounds(victims, 5)
    assert [get_stage(point) for point in fleet.died_at if point] == ["chunk", "embed"]
    assert fleet.died_at[-1] is None and plan.is_complete(["chunk", "embed"])


@pytest.mark.parametrize("is_full", [True, False])
def test_run_names_what_it_reached_and_did_not_strike(is_full: bool) -> None:
    plan = KillPlan(is_full=is_full, reached=set(POINTS))
    run_rounds(make_victims(FakeFleet(POINTS[:1]), plan, "chunk"), 2)
    assert plan.list_missing() == ([STORE] if is_full else ["embed"])
