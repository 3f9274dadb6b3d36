"""Reject unknown query parameters, text that Postgres cannot store and numbers that JSON lacks.

Runs before every route.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, get_origin

from fastapi import Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query
from fastapi.routing import APIRoute

from api.problems import invalid_json
from schemas.errors import InvalidRequest

# Requests are stored inside events, which JSON libraries limit to a depth of 200 or more.
MAX_JSON_DEPTH = 100
# Names of parameters come from the client: an error quotes a few of them, shortened.
MAX_QUOTED_NAMES, MAX_QUOTED_CHARACTERS = 5, 64


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


def check_query_parameters(route: APIRoute, names: Sequence[str]) -> None:
    """Raises InvalidRequest for parameters that the operation lacks, and for repeated ones.

    A misspelt filter would otherwise have no effect, and of a repeated one only the last would
    count. A parameter that is a list may be repeated.
    """
    known = {
        field.alias: get_origin(field.field_info.annotation) is list
        for field in get_flat_params(route.dependant)
        if isinstance(field.field_info, Query)
    }
    if unknown := sorted(set(names) - known.keys()):
        raise InvalidRequest(
            f"Unknown query parameter {_quote_names(unknown)}.",
            code="UNKNOWN_PARAMETER",
            remedy=f"Known parameters: {', '.join(sorted(known))}."
            if known
            else "Omit it: this operation has no query parameters.",
        )
    if repeated := sorted(name for name in set(names) if names.count(name) > 1 and not known[name]):
        raise InvalidRequest(
            f"Query parameter {_quote_names(repeated)} was sent more than once.",
            code="REPEATED_PARAMETER",
            remedy="Send it once.",
        )


def _quote_names(names: Sequence[str]) -> str:
    return ", ".join(repr(name[:MAX_QUOTED_CHARACTERS]) for name in names[:MAX_QUOTED_NAMES])


async def validate_input(request: Request) -> None:
    """Check path, query string and JSON body. A dependency of all routes."""
    query = request.query_params.multi_items()
    check_query_parameters(request.scope["route"], [name for name, _ in query])
    for name, value in (*request.path_params.items(), *query):
        # Postgres stores neither NUL nor surrogates: without this check they end in a 500.
        check_text(str(value), name)
    # Starlette caches a JSON body for the route; a form is left for the route to stream.
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
    # A stack, because recursion would fail on the nesting that is to be rejected.
    stack = [(0, value)]
    while stack:
        depth, node = stack.pop()
        yield depth, node
        match node:
            case list() as items:
                stack.extend((depth + 1, item) for item in items)
            case dict() as fields:
                stack.extend((depth + 1, item) for item in (*fields.keys(), *fields.values()))
