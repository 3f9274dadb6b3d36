"""What to do about a value that is out of its bounds: the remedy names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from schemas import sources, values

OTHERWISE = "Compare the request with /openapi.json."
BOUNDS = {
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} characters",
    "too_long": "at most {max_length} of them",
    "too_short": "at least {min_length} of them",
    "literal_error": "one of {expected}",
    "enum": "one of {expected}",
    "string_pattern_mismatch": "a text of the form {pattern}",
}
"""By the type of the error, with what Pydantic says of it."""
FORMS = {
    sources.NAME: "a letter a to z, then at most 39 of a to z, 0 to 9, _ and -",
    sources.SLOT: "at most 63 of a to z, 0 to 9 and _",
    sources.TABLE: "TABLE or SCHEMA.TABLE",
    sources.ADDRESS: "an http or https address",
    values.READER: "user:NAME, group:NAME or everyone, without spaces",
}
"""Patterns in words."""


def remedy_of(errors: Iterable[Mapping[str, Any]]) -> str:
    """Of validation errors as Pydantic tells them."""
    return " ".join(dict.fromkeys(_told(error) or OTHERWISE for error in errors))


def _told(error: Mapping[str, Any]) -> str | None:
    bound, about = BOUNDS.get(error["type"]), error.get("ctx", {})
    if bound is None:
        return None
    words = FORMS.get(about.get("pattern", "")) or bound.format(**about)
    return f"{_name(error['loc'])}: give {words}."


def _name(place: Sequence[object]) -> str:
    """As its sender calls it: without where in the request it stands, and which of several it is."""
    parts = place[1:] if place[0] in ("body", "query", "path", "header") else place
    return ".".join(str(part) for part in parts if not isinstance(part, int)) or "the body"
