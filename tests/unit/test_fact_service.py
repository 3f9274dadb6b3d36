"""Proposing facts, without a log or tables."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from schemas.facts import FactRequest


def test_reader_that_is_no_user_or_group_is_rejected() -> None:
    with pytest.raises(ValidationError):
        FactRequest(subject="a", predicate="is", object="b", readers=["ana"])
