"""What a reader takes for committed, without a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from faust.types import TP

from streams.kafka.app import StageApp
from streams.kafka.assignment import Assignment

PLACE = TP("topic", 0)


class Thread:
    """As Faust's that talks to the broker, which refuses or takes what is committed."""

    def __init__(self, takes: bool) -> None:
        self.takes = takes

    async def commit(self, offsets: Mapping[Any, int]) -> bool:
        return self.takes

    def assignment(self) -> set[TP]:
        return {PLACE}


def consumer(takes: bool) -> Any:
    arguments = {"bootstrap_servers": "127.0.0.1:1", "session_timeout_ms": 6000, "rebalance_timeout_ms": 6000}
    app = StageApp("group", "topic", Assignment("topic", lambda partition: pytest.fail("nothing is assigned here")), arguments)
    made: Any = app.consumer
    made._thread.thread_loop.close()  # it runs nowhere
    made._thread = Thread(takes)
    return made


@pytest.mark.parametrize(("takes", "kept"), [(True, 5), (False, None)])
async def test_what_the_group_refused_is_not_taken_for_committed(takes: bool, kept: int | None) -> None:
    reader = consumer(takes)
    assert await reader._commit_offsets({PLACE: 5}) is takes
    assert reader._committed_offset[PLACE] == kept
