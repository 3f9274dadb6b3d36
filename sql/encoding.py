"""Values as Postgres takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic_core import to_json

NUL_REPLACEMENT = "\ufffd"
"""In place of NUL, which no text of Postgres can hold: one code point for one, so that offsets stay true."""


def replace_nul(value: str | None) -> str | None:
    return value.replace("\0", NUL_REPLACEMENT) if value and "\0" in value else value


def encode_json_text(value: Any) -> str:
    return encode_json(value).decode()


def encode_json(value: Any) -> bytes:
    """Compact, in UTF-8, of what JSON has a form for; other things are not all refused. Raises ValueError for half of a surrogate pair, and for what is nested
    more than 254 deep."""
    dumped = to_json(value)
    return to_json(_replace_nul_recursively(value)) if b"\\u0000" in dumped else dumped


def format_array(numbers: Iterable[int] | None) -> str | None:
    """An array literal: arrays of arrays of different lengths cannot be parameters."""
    return None if numbers is None else "{" + ",".join(map(str, numbers)) + "}"


def _replace_nul_recursively(value: Any) -> Any:
    match value:
        case str():
            return replace_nul(value)
        case dict():
            return {replace_nul(name): _replace_nul_recursively(item) for name, item in value.items()}
        case list() | tuple():
            return [_replace_nul_recursively(item) for item in value]
    return value
