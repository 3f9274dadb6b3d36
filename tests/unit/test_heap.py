from __future__ import annotations

import gc

from anabranch.process.api_process import freeze_heap


def test_startup_objects_are_frozen_out_of_gc() -> None:
    gc.unfreeze()
    freeze_heap()
    assert gc.get_freeze_count() > 10_000
