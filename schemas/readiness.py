"""State of the dependencies of the API."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DependencyStatus:
    """One line of `/readyz`."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""
