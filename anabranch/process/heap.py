"""The heap of a process that lives long."""

from __future__ import annotations

import gc


def freeze_heap() -> None:
    """Once all is loaded: what lives as long as the process is not looked through by each full collection of garbage, which takes 60 ms of a search that it falls in."""
    gc.collect()
    gc.freeze()
