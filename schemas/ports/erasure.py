"""What the reaction to a request for erasure asks of the rest."""

from __future__ import annotations

from typing import Protocol

from schemas.events import ErasureCompleted, ErasureRequested


class Eraser(Protocol):
    async def erase(self, request: ErasureRequested) -> ErasureCompleted:
        """Returns when nothing is left but what the receipt names. May be called again for the same request at any time, and goes on where it was."""
