"""The wait that all tests share."""

from __future__ import annotations

from itertools import count

import pytest

from tests.support.eventually import eventually, eventually_blocking


async def test_value_is_returned_once_it_is_accepted() -> None:
    numbers = count()
    assert await eventually(lambda: next(numbers), lambda number: number >= 3) == 3
    assert eventually_blocking(lambda: next(numbers), lambda number: number >= 6) == 6


async def test_wait_lasts_while_the_value_changes() -> None:
    numbers = count()
    assert await eventually(lambda: next(numbers), lambda n: n >= 12, stall_s=0.2) == 12


async def test_stalled_wait_fails_with_the_last_value() -> None:
    with pytest.raises(AssertionError, match=r"for herons: no change in 0\.05 s.*Last value: 7"):
        await eventually(lambda: 7, lambda value: value == 8, what="herons", stall_s=0.05)
    with pytest.raises(AssertionError, match=r"for storks.*Last value: False"):
        eventually_blocking(lambda: False, what=lambda: "storks", stall_s=0.05)
