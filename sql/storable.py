"""Values as Postgres takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic_core import to_json

REPLACEMENT = "\ufffd"
"""In place of NUL, which no text of Postgres can hold: one code point for one, so that offsets stay true."""


def text(value: str | None) -> str | None:
    return value.replace("\0", REPLACEMENT) if value and "\0" in value else value


def json_text(value: Any) -> str:
    return json_bytes(value).decode()


def json_bytes(value: Any) -> bytes:
    """Compact, in UTF-8, of what JSON has a form for; other things are not all refused. Raises ValueError for half of a surrogate pair, and for what is nested
    more than 254 deep."""
    dumped = to_json(value)
    return to_json(_without_nul(value)) if b"\\u0000" in dumped else dumped


def array_text(numbers: Iterable[int] | None) -> str | None:
    """An array literal: arrays of arrays of different lengths cannot be parameters."""
    return None if numbers is None else "{" + ",".join(map(str, numbers)) + "}"


def _without_nul(value: Any) -> Any:
    match value:
        case str():
            return text(value)
        case dict():
            return {text(name): _without_nul(item) for name, item in value.items()}
        case list() | tuple():
            return [_without_nul(item) for item in value]
    return value
