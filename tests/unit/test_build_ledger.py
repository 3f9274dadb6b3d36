"""Claims of a build run in concurrent transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from schemas.ports.ledger import OrderingPolicy
from services.worker.assignment_ledgers import BUILD_TRANSACTIONS, BuildLedger
from sql.inbox.ledger import PgLedger

DOCUMENTS = [UUID(int=number) for number in (4, 1, 1, 2, 4, 3)]


def make_events() -> Any:
    return [
        SimpleNamespace(
            number=number, event=SimpleNamespace(data=SimpleNamespace(document_id=document_id))
        )
        for number, document_id in enumerate(DOCUMENTS)
    ]


async def claim_with(monkeypatch: pytest.MonkeyPatch, claim: Any) -> Any:
    monkeypatch.setattr(PgLedger, "claim", claim)
    ledger: Any = BuildLedger(None, None)  # type: ignore[arg-type]
    return await ledger.claim("embed", OrderingPolicy.VISIBLE, make_events())


async def test_results_are_in_order_and_a_document_stays_in_one_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transactions: list[list[int]] = []

    async def claim(_ledger: Any, _stage: str, _ordering: Any, events: Sequence[Any]) -> list[int]:
        transactions.append([event.number for event in events])
        return [event.number for event in events]

    assert await claim_with(monkeypatch, claim) == [0, 1, 2, 3, 4, 5]
    assert sorted(transactions) == [[0, 3, 4], [1, 2, 5]]
    assert len(transactions) == BUILD_TRANSACTIONS


async def test_error_is_raised_after_all_transactions_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[int] = []

    async def claim(_ledger: Any, _stage: str, _ordering: Any, events: Sequence[Any]) -> list[int]:
        if events[0].number == 0:
            raise ValueError("rejected")
        await asyncio.sleep(0.01)
        ended.append(events[0].number)
        return [event.number for event in events]

    with pytest.raises(ValueError, match="rejected"):
        await claim_with(monkeypatch, claim)
    assert ended == [1]
