"""The order in which workers are killed at await points."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults import killed_workers
from tests.faults.killed_workers import StageVictims
from tests.faults.worker import DIED


class FakeFleet:
    """Workers that die at their await point, unless they cannot reach it."""

    def __init__(self, unreachable: set[str]) -> None:
        self.unreachable = unreachable
        self.kill_points: list[str | None] = []
        self.stopped_workers: list[Any] = []

    def spawn_worker(self, stages: list[str], die_at: str | None) -> Any:
        self.kill_points.append(die_at)
        dies = die_at is not None and die_at not in self.unreachable
        return SimpleNamespace(
            process=SimpleNamespace(poll=lambda: -9 if dies else None),
            note_lines=[f"{DIED}{die_at}"] if dies else [],
        )

    def stop_worker(self, worker: Any, signal_number: int) -> None:
        self.stopped_workers.append(worker)


def run_rounds(victims: StageVictims, count: int) -> None:
    for _ in range(count):
        victims.check_worker()


def test_each_point_is_struck_once_and_then_a_worker_lives() -> None:
    fleet = FakeFleet(set())
    victims = StageVictims(SimpleNamespace(fleet=fleet), "embed", deque(["a", "b"]))  # type: ignore[arg-type]
    run_rounds(victims, 8)
    assert fleet.kill_points == ["a", "b", None]
    assert victims.struck == {"a", "b"} and victims.n_killed == 2 and victims.is_covered


def test_point_not_reached_is_tried_again_after_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(killed_workers, "KILL_TIMEOUT_S", -1.0)
    fleet = FakeFleet({"a"})
    victims = StageVictims(SimpleNamespace(fleet=fleet), "embed", deque(["a", "b"]))  # type: ignore[arg-type]
    run_rounds(victims, 5)
    assert fleet.kill_points == ["a", "b", "a"]
    assert victims.struck == {"b"} and not victims.is_covered
    fleet.unreachable.clear()
    run_rounds(victims, 3)
    assert victims.struck == {"a", "b"}
