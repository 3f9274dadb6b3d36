"""The published status of paused consumers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from schemas.errors import AnabranchError

ALL_PARTITIONS = -1
"""Stands for all partitions of a topic."""


@dataclass(frozen=True, slots=True)
class Pause:
    reader: str
    """The consumer group."""
    topic: str
    partition: int
    code: str
    detail: str
    remedy: str
    since: datetime


class ReaderStatus(Protocol):
    """Publishes why a consumer is paused.

    Entries expire unless renewed. Every call may raise DatabaseUnavailable.
    """

    async def set_paused(
        self, reader: str, topic: str, partition: int, reason: AnabranchError
    ) -> None: ...

    async def clear_paused(self, reader: str, topic: str, partition: int) -> None: ...
