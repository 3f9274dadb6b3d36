"""The OpenAPI document, which takes half a second to make."""

from __future__ import annotations

from functools import cache
from typing import Any

from api.app import create_routes


@cache
def build_openapi_document() -> dict[str, Any]:
    return create_routes().openapi()
