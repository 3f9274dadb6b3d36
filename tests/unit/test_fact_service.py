"""Proposing facts, without a log or tables."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import ValidationError

from schemas.errors import LogUnavailable
from schemas.facts import FactRequest, FactStatus
from services.facts import FactService
from tests.support.api_client import LOCAL_CALLER

NOW = datetime(2026, 11, 25, tzinfo=UTC)
ANA = FactRequest(subject="The contact for plant 3", predicate="is", object="Ana")


class LateTable:
    """Shows no fact yet, unless it is listed."""

    def __init__(self) -> None:
        self.shown: set[UUID] = set()

    async def find(self, caller: Any, fact_id: UUID) -> Any:
        await asyncio.sleep(0)
        return fact_id if fact_id in self.shown else None

    async def find_equal(self, tenant: str, request: FactRequest, now: datetime) -> UUID | None:
        await asyncio.sleep(0)
        return None


class FakeLog:
    def __init__(self) -> None:
        self.n_appended = 0
        self.is_available = True

    async def append(self, records: Sequence[Any]) -> None:
        await asyncio.sleep(0)
        if not self.is_available:
            raise LogUnavailable("The log is unavailable.")
        self.n_appended += len(records)


class PlainCodec:
    async def encode(self, event: Any, topic: Any, key: str) -> Any:
        return event


def build_service() -> tuple[FactService, FakeLog, LateTable]:
    log, table = FakeLog(), LateTable()
    service = FactService(log, table, PlainCodec(), lambda: NOW, uuid4)  # type: ignore[arg-type]
    return service, log, table


async def test_fact_proposed_twice_at_once_is_published_once() -> None:
    service, log, _ = build_service()
    first, second = await asyncio.gather(
        service.propose(LOCAL_CALLER, ANA), service.propose(LOCAL_CALLER, ANA)
    )
    assert (second.fact_id, second.duplicate) == (first.fact_id, True)
    other = await service.propose(LOCAL_CALLER, ANA.model_copy(update={"object": "Rui"}))
    assert not other.duplicate and log.n_appended == 2


async def test_rejected_fact_can_be_proposed_again_at_once() -> None:
    service, _, table = build_service()
    first = await service.propose(LOCAL_CALLER, ANA)
    table.shown.add(first.fact_id)  # not among the equal ones: it was rejected
    assert not (await service.propose(LOCAL_CALLER, ANA)).duplicate


async def test_fact_that_was_not_published_can_be_proposed_again() -> None:
    service, log, _ = build_service()
    log.is_available = False
    with pytest.raises(LogUnavailable):
        await service.propose(LOCAL_CALLER, ANA)
    log.is_available = True
    assert not (await service.propose(LOCAL_CALLER, ANA)).duplicate


@pytest.mark.parametrize(("decision", "status"), [("approve", "approved"), ("reject", "rejected")])
async def test_decision_returns_once_the_tables_show_it(decision: str, status: FactStatus) -> None:
    service, log, _ = build_service()
    looked_at: list[int] = []

    class SlowTable:
        async def find(self, caller: Any, fact_id: UUID) -> Any:
            looked_at.append(log.n_appended)
            return SimpleNamespace(status=status if len(looked_at) > 3 else "proposed")

    waiting = replace(service, facts=SlowTable())  # type: ignore[arg-type]
    arguments = (LOCAL_CALLER, uuid4(), *([None] if decision == "reject" else []))
    receipt = await getattr(waiting, decision)(*arguments)
    assert receipt.status == "applied" and looked_at == [0, 1, 1, 1]
    looked_at.clear()
    late = await getattr(replace(waiting, decision_wait_s=0.0), decision)(*arguments)
    assert late.status == "accepted"


def test_reader_that_is_no_user_or_group_is_rejected() -> None:
    with pytest.raises(ValidationError):
        FactRequest(subject="a", predicate="is", object="b", readers=["ana"])
