"""Format the errors of validation for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def format_invalid_fields(problems: Iterable[Mapping[str, Any]], whole: str = "value") -> str:
    """Return `field: reason` of every problem; of one of no single field, `whole` in its place.

    `problems` are those of `ValidationError.errors()`.
    """
    return "; ".join(
        # pydantic puts the class of the exception before the message of a validator.
        f"{'.'.join(map(str, problem['loc'])) or whole}: "
        f"{problem['msg'].removeprefix('Value error, ')}"
        for problem in problems
    )
