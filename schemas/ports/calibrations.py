"""Learned thresholds, read by queries."""

from __future__ import annotations

from typing import Protocol

from schemas.exams import Calibration


class CalibrationStore(Protocol):
    async def fetch(
        self, tenant: str, generation: str, scores: str | None = None
    ) -> Calibration | None:
        """Return the calibration of the generation for these scores, or for any."""
