"""How many events a second may be asked for: from one in a quarter of an hour on; more than the tables can keep as a number is no pace."""

from __future__ import annotations

MIN_EVENTS_PER_S = 0.001
MAX_EVENTS_PER_S = 1_000_000
