"""State of the dependencies of the API."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DependencyStatus:
    """Status of one dependency in `/readyz`."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""
