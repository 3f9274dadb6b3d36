"""Text that no database column can hold, and numbers that are none, are refused at the edge."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from fastapi import Request

from api.problems import invalid_json
from schemas.errors import InvalidRequest

MAX_JSON_DEPTH = 100
"""Lists and objects within each other. Readers and writers of JSON have limits of their own, 200 and more, and what is asked is kept inside of events."""


def check_text(text: str, where: str) -> None:
    """Raises InvalidRequest for NUL characters and lone surrogates."""
    if "\x00" in text:
        raise InvalidRequest(f"{where} holds a NUL character", remedy="Take the NUL character out.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{where} holds a lone surrogate", remedy="Send valid Unicode.") from None


def check_json(value: Any, where: str) -> None:
    """Raises InvalidRequest for such texts at any depth, for numbers that JSON does not have, though Python reads them, and for what is nested deeper than
    `DEEPEST`."""
    for depth, item in _walk_json(value):
        if depth > MAX_JSON_DEPTH:
            raise InvalidRequest(f"{where} is nested more than {MAX_JSON_DEPTH} deep", remedy="Make it flatter.")
        if isinstance(item, str):
            check_text(item, where)
        elif isinstance(item, float) and not math.isfinite(item):
            raise InvalidRequest(f"{where} holds a number that JSON does not have: {item}", remedy="Leave it out, or send null.")


async def validate_input(request: Request) -> None:
    """A dependency of all routes: path, query string and JSON body."""
    for name, value in (*request.path_params.items(), *request.query_params.multi_items()):
        check_text(name, "the query string")
        check_text(str(value), name)
    if has_json_body(request) and await request.body():
        check_json(await read_json(request), "the body")


def has_json_body(request: Request) -> bool:
    """However its type is spelt (RFC 6839: anything that ends in +json)."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type == "application/json" or (media_type.startswith("application/") and media_type.endswith("+json"))


async def read_json(request: Request) -> Any:
    """Raises InvalidRequest for what is no JSON."""
    try:
        return await request.json()
    except json.JSONDecodeError as error:
        raise invalid_json(error.doc, error.pos, error.msg) from error
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the body is not JSON: {error}", remedy="Send well-formed JSON in UTF-8.") from error


def _walk_json(value: Any) -> Iterator[tuple[int, Any]]:
    """Each with how deep it is nested, keys included."""
    stack = [(0, value)]
    while stack:
        depth, node = stack.pop()
        yield depth, node
        match node:
            case list() as items:
                stack.extend((depth + 1, item) for item in items)
            case dict() as fields:
                stack.extend((depth + 1, item) for item in (*fields.keys(), *fields.values()))
