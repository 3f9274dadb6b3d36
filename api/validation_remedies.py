"""Remedies for values out of bounds, which name the bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from schemas import sources, values

DEFAULT_REMEDY = "Compare the request with /openapi.json."
# By Pydantic's error type, with placeholders of its context.
BOUND_DESCRIPTIONS = {
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
PATTERN_DESCRIPTIONS = {
    sources.NAME_PATTERN: "a letter a to z, then at most 39 of a to z, 0 to 9, _ and -",
    sources.SLOT_PATTERN: "at most 63 of a to z, 0 to 9 and _",
    sources.TABLE_PATTERN: "TABLE or SCHEMA.TABLE",
    sources.URL_PATTERN: "an http or https address",
    values.READER_PATTERN: "user:NAME, group:NAME or everyone, without spaces",
}


def format_remedy(errors: Iterable[Mapping[str, Any]]) -> str:
    """Format a remedy for Pydantic's validation errors."""
    return " ".join(dict.fromkeys(_format_error(error) or DEFAULT_REMEDY for error in errors))


def _format_error(error: Mapping[str, Any]) -> str | None:
    bound, context = BOUND_DESCRIPTIONS.get(error["type"]), error.get("ctx", {})
    if bound is None:
        return None
    description = PATTERN_DESCRIPTIONS.get(context.get("pattern", "")) or bound.format(**context)
    return f"{_format_location(error['loc'])}: give {description}."


def _format_location(location: Sequence[object]) -> str:
    """Name the field as the sender does, without the part of the request and list indices."""
    parts = location[1:] if location[0] in ("body", "query", "path", "header") else location
    return ".".join(str(part) for part in parts if not isinstance(part, int)) or "the body"
