"""Looking up a run that the tables do not have yet."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from schemas.principals import Principal
from services.query import run_history
from services.query.run_history import RecentRunLookup
from tests.support.api_client import LOCAL_CALLER, make_caller

RUN = UUID(int=1)


class LateTable:
    """Has the run, then its answer, a moment after it was asked for."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any] | None] = [
            None,
            {"run_id": RUN, "answered_at": None},
            {"run_id": RUN, "answered_at": "2026-11-25"},
        ]

    async def get_run(self, caller: Principal, run_id: UUID) -> dict[str, Any] | None:
        return self.rows.pop(0) if len(self.rows) > 1 else self.rows[0]


async def test_lookup_waits_for_a_run_answered_by_this_process() -> None:
    lookup = RecentRunLookup(LateTable(), lambda tenant, run_id: run_id == RUN)
    async with asyncio.timeout(30):
        row = await lookup.get_run(LOCAL_CALLER, RUN)
    assert row is not None and row["answered_at"] is not None


async def test_lookup_does_not_wait_for_unknown_or_hidden_runs(monkeypatch: Any) -> None:
    monkeypatch.setattr(run_history, "RUN_WAIT_S", 60.0)
    async with asyncio.timeout(30):
        assert (
            await RecentRunLookup(LateTable(), lambda *_: False).get_run(LOCAL_CALLER, RUN) is None
        )
        limited = make_caller(readers=("user:ana",))
        assert await RecentRunLookup(LateTable(), lambda *_: True).get_run(limited, RUN) is None
