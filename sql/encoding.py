"""Encode values that Postgres can store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

NUL_REPLACEMENT = "\ufffd"
"""Replaces NUL, which Postgres text cannot contain. It is one code point too; offsets stay."""


def replace_nul(value: str | None) -> str | None:
    return value.replace("\0", NUL_REPLACEMENT) if value and "\0" in value else value


def read_values(source: object, *names: str) -> list[Any]:
    """Return the values of these fields as Postgres stores them: models as JSON objects."""
    return [_encode_value(getattr(source, name)) for name in names]


def _encode_value(value: Any) -> Any:
    match value:
        case str():
            return replace_nul(value)
        case BaseModel():
            return value.model_dump(mode="json")
        case list() | tuple():
            return [_encode_value(item) for item in value]
    return value


def encode_json_text(value: Any) -> str:
    return encode_json(value).decode()


def encode_json(value: Any) -> bytes:
    """Encode a value as compact JSON in UTF-8.

    Raises ValueError for an unpaired surrogate and for nesting deeper than 254.
    """
    dumped = to_json(value)
    # Replaced only where the JSON has the escape, since the walk is slow.
    return to_json(_replace_nul_recursively(value)) if b"\\u0000" in dumped else dumped


def format_array(numbers: Iterable[int] | None) -> str | None:
    # A literal: array parameters must be rectangular, and orders differ in length.
    return None if numbers is None else "{" + ",".join(map(str, numbers)) + "}"


def _replace_nul_recursively(value: Any) -> Any:
    match value:
        case str():
            return replace_nul(value)
        case dict():
            return {
                replace_nul(name): _replace_nul_recursively(item) for name, item in value.items()
            }
        case list() | tuple():
            return [_replace_nul_recursively(item) for item in value]
    return value
