from __future__ import annotations

import gc

from anabranch.process.heap import settle_heap


def test_what_is_there_when_a_server_has_started_is_not_collected_again() -> None:
    gc.unfreeze()
    settle_heap()
    assert gc.get_freeze_count() > 10_000
