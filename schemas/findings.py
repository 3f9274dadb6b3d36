"""Findings of `anabranch doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FindingState = Literal["pass", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check. `remedy` is empty if there is nothing to do."""

    check: str
    state: FindingState
    detail: str
    remedy: str = ""
