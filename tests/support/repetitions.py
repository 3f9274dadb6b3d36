"""Repeat a scenario once in `make test`, and more often in `make test-long`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

IS_LONG = "TEST_LONG" in os.environ
"""Set by `make test-long`."""
SHORT_SHARE, MIN_EXAMPLES = 6, 10
"""`make test` draws one example in six. The written-out examples of a test are always tried."""


def repeat(count: int, short: int = 1) -> list[Any]:
    """Return the seeds of a parametrized test. All but the first are for `make test-long`."""
    return [
        *range(short),
        *(pytest.param(seed, marks=pytest.mark.long) for seed in range(short, count)),
    ]


def count_examples(count: int) -> int:
    """Return how many of `count` examples to draw in this run."""
    return count if IS_LONG else max(count // SHORT_SHARE, MIN_EXAMPLES)


def draw_examples(count: int) -> Callable[[Any], Any]:
    """Draw `count` examples in `make test-long` and some of them in `make test`."""
    drawn = settings(max_examples=count_examples(count))
    return lambda test: pytest.mark.drawn(drawn(test))
