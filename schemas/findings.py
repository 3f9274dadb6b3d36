"""Findings of `anabranch doctor`, and the state of the dependencies of the API."""

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


@dataclass(frozen=True, slots=True)
class DependencyStatus:
    """Status of one dependency in `/readyz`."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""
