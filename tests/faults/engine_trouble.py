"""A model server that is unwell now and then, while embedding goes through it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.faults.trial import Trial, passed
from tests.integration.cluster import until

DOSE = 3
"""Wrong answers in a row: fewer than an event is tried."""
SETTLED_S = 4.0
PORTION = 8
"""Events that go in with each dose."""


def in_doses(trial: Trial, wrong: Callable[[], dict[str, Any]]) -> int:
    """Three wrong answers, some time to get over them, three more. Returns how many were given."""
    server = trial.engine
    assert server is not None, "this fault asks for a server"
    trial.staffed()
    started, given = time.monotonic(), 0
    while not given or (passed(started) < trial.span_s and trial.pushed < len(trial.events)):
        for _ in range(DOSE):
            server.fail(on="embeddings", **wrong())
        given += DOSE
        trial.feed(max(PORTION, len(trial.events) // len(trial.rounds(SETTLED_S))))
        until(lambda: server.troubles == 0, "the engine to be asked")
        time.sleep(SETTLED_S)
    return given
