"""Requests for erasure carried out. It projects nothing: the receipt is a fact, which stage control projects."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.events import ErasureRequested, Fact
from schemas.ports.bundle import Ports
from streams.stage import Counted, Stage, Statement
from streams.topics import CONTROL


async def react(counted: Sequence[Counted], ports: Ports) -> list[Statement]:
    """Other decisions pass."""
    return [await _erased(item.fact, ports) for item in counted if isinstance(item.fact.data, ErasureRequested)]


async def _erased(fact: Fact[ErasureRequested], ports: Ports) -> Statement:
    assert ports.eraser is not None, "a worker that hosts this stage has an eraser"
    return Statement(fact, await ports.eraser.erase(fact.data), id_parts=("erasure", str(fact.data.receipt_id)))


STAGE = Stage("erase", CONTROL, 1, counts="always", react=react, deadline_s=24 * 3600, essential=False, shared=True)
