"""Text that no database column can hold is refused at the edge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fastapi import Request

from api.problems import no_json
from schemas.errors import InvalidRequest


def check_text(text: str, where: str) -> None:
    """Raises InvalidRequest for NUL characters and lone surrogates."""
    if "\x00" in text:
        raise InvalidRequest(f"{where} holds a NUL character", remedy="Take the NUL character out.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{where} holds a lone surrogate", remedy="Send valid Unicode.") from None


async def clean_input(request: Request) -> None:
    """A dependency of all routes: path, query string and JSON body."""
    for name, value in (*request.path_params.items(), *request.query_params.multi_items()):
        check_text(name, "the query string")
        check_text(str(value), name)
    if request.headers.get("content-type", "").partition(";")[0].strip() == "application/json" and await request.body():
        for text in _texts(await read_json(request)):
            check_text(text, "the body")


async def read_json(request: Request) -> Any:
    """Raises InvalidRequest for what is no JSON."""
    try:
        return await request.json()
    except json.JSONDecodeError as error:
        raise no_json(error.doc, error.pos, error.msg) from error
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the body is not JSON: {error}", remedy="Send well-formed JSON in UTF-8.") from error


def _texts(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str() as text:
                yield text
            case list() as items:
                waiting.extend(items)
            case dict() as fields:
                waiting.extend((*fields.keys(), *fields.values()))
