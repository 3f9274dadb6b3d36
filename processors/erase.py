"""Requests for erasure carried out. It projects nothing: the receipt is a fact, which stage control projects."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.events import ErasureRequested
from schemas.ports.bundle import Ports
from streams.stage import Counted, Stage, Statement
from streams.topics import CONTROL


async def react(counted: Sequence[Counted], ports: Ports) -> list[Statement]:
    assert ports.eraser is not None, "a worker that hosts this stage has an eraser"
    return [
        Statement(item.fact, await ports.eraser.erase(item.fact.data), id_parts=("erasure", str(item.fact.data.receipt_id)))
        for item in counted
        if isinstance(item.fact.data, ErasureRequested)
    ]


STAGE = Stage("erase", CONTROL, 1, counts="always", react=react, deadline_s=24 * 3600, essential=False, shared=True)
