"""The port that carries out erasure requests."""

from __future__ import annotations

from typing import Protocol

from schemas.events import ErasureCompleted, ErasureRequested


class Eraser(Protocol):
    async def erase(self, request: ErasureRequested) -> ErasureCompleted:
        """Erase everything except what the receipt lists as remaining.

        Idempotent: a repeated call resumes the erasure.
        """
