"""Bounds of configurable event rates."""

from __future__ import annotations

MIN_EVENTS_PER_S = 0.001
"""One event in about 17 minutes."""
MAX_EVENTS_PER_S = 1_000_000
"""The largest rate that the tables can store."""
