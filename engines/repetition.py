"""Detection of repetitive text in linear time."""

from __future__ import annotations

_MAX_PERIOD = 64
_WINDOW_CHARACTERS = 4096


def find_period(text: str) -> int | None:
    """Return the period, at most 64 characters, with which the whole text repeats, or None."""
    # Compare a short prefix first: most periods fail there, without copying the text.
    periods = range(1, min(_MAX_PERIOD, len(text) // 2) + 1)
    return next(
        (
            period
            for period in periods
            if text.startswith(text[:16], period) and text[period:] == text[:-period]
        ),
        None,
    )


def count_repeated_characters(text: str) -> int:
    """Count the characters in windows of 4,096 that consist of repetition."""
    return sum(
        _WINDOW_CHARACTERS
        for start in range(0, len(text) - _WINDOW_CHARACTERS + 1, _WINDOW_CHARACTERS)
        if find_period(text[start : start + _WINDOW_CHARACTERS])
    )
