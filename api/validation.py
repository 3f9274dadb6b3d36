"""Reject text that Postgres cannot store and numbers that JSON lacks, before a route runs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from fastapi import Request

from api.problems import invalid_json
from schemas.errors import InvalidRequest

# Requests are stored inside events, which JSON libraries limit to a depth of 200 or more.
MAX_JSON_DEPTH = 100


def check_text(text: str, where: str) -> None:
    """Raises InvalidRequest for NUL characters and lone surrogates."""
    if "\x00" in text:
        raise InvalidRequest(
            f"{where} contains a NUL character.", remedy="Remove the NUL character."
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(
            f"{where} contains a lone surrogate.", remedy="Send valid Unicode."
        ) from None


def check_json(value: Any, where: str) -> None:
    """Check every text at any depth.

    Raises InvalidRequest also for numbers that JSON lacks but Python parses, and for nesting deeper
    than `MAX_JSON_DEPTH`.
    """
    for depth, item in _walk_json(value):
        if depth > MAX_JSON_DEPTH:
            raise InvalidRequest(
                f"{where} is nested more than {MAX_JSON_DEPTH} levels deep.",
                remedy=f"Reduce nesting to {MAX_JSON_DEPTH} levels.",
            )
        if isinstance(item, str):
            check_text(item, where)
        elif isinstance(item, float) and not math.isfinite(item):
            raise InvalidRequest(
                f"{where} contains {item}, which is not a JSON number.",
                remedy="Omit it, or send null.",
            )


async def validate_input(request: Request) -> None:
    """Check path, query string and JSON body. A dependency of all routes."""
    for name, value in (*request.path_params.items(), *request.query_params.multi_items()):
        check_text(name, "The query string")
        check_text(str(value), name)
    if has_json_body(request) and await request.body():
        check_json(await read_json(request), "The body")


def has_json_body(request: Request) -> bool:
    """True for application/json and any media type that ends in +json (RFC 6839)."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type == "application/json" or (
        media_type.startswith("application/") and media_type.endswith("+json")
    )


async def read_json(request: Request) -> Any:
    """Raises InvalidRequest for malformed JSON."""
    try:
        return await request.json()
    except json.JSONDecodeError as error:
        raise invalid_json(error.doc, error.pos, error.msg) from error
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(
            f"The body is not valid JSON: {error}.", remedy="Send well-formed JSON in UTF-8."
        ) from error


def _walk_json(value: Any) -> Iterator[tuple[int, Any]]:
    """Yield every value with its depth, object keys included."""
    stack = [(0, value)]
    while stack:
        depth, node = stack.pop()
        yield depth, node
        match node:
            case list() as items:
                stack.extend((depth + 1, item) for item in items)
            case dict() as fields:
                stack.extend((depth + 1, item) for item in (*fields.keys(), *fields.values()))
