"""Text that says one thing over and over: found in linear time, whatever it says."""

from __future__ import annotations

_PERIOD = 64
_WINDOW = 4096


def find_period(text: str) -> int | None:
    """Return after how many characters, 64 at most, the text repeats itself from start to end."""
    # The short comparison first: most periods fail there, without copies of the text.
    periods = range(1, min(_PERIOD, len(text) // 2) + 1)
    return next((period for period in periods if text.startswith(text[:16], period) and text[period:] == text[:-period]), None)


def count_repeated(text: str) -> int:
    """Count the characters of windows of 4,096 that are repetition."""
    return sum(_WINDOW for start in range(0, len(text) - _WINDOW + 1, _WINDOW) if find_period(text[start : start + _WINDOW]))
