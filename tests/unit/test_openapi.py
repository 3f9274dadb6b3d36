"""The OpenAPI document: every response has a schema, every operation lists its errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from api.app import OPERATIONS
from api.problems import MEDIA_TYPE
from tests.support.api_client import build_openapi_document

ERROR_REFERENCE = Path(__file__).parents[2] / "docs/reference/errors.md"


def list_operations() -> dict[str, dict[str, Any]]:
    return {
        operation["operationId"]: operation
        for path in build_openapi_document()["paths"].values()
        for operation in path.values()
    }


def list_contents(operation: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for status, response in operation["responses"].items():
        for media_type, content in response.get("content", {}).items():
            yield status, media_type, content.get("schema", {})


def test_every_json_response_has_named_fields() -> None:
    untyped = [
        (name, status, media_type)
        for name, operation in list_operations().items()
        for status, media_type, schema in list_contents(operation)
        if "json" in media_type and not ({"$ref", "properties", "anyOf"} & schema.keys())
    ]
    assert len(list_operations()) > 60
    assert untyped == []


def test_every_reference_resolves() -> None:
    references = set(re.findall(r"#/components/schemas/([^']+)'", str(build_openapi_document())))
    assert references and references <= build_openapi_document()["components"]["schemas"].keys()


def test_every_error_is_a_problem() -> None:
    for name, operation in list_operations().items():
        for status, media_type, schema in list_contents(operation):
            if not status.startswith("2") and (name, status) != ("readyz", "503"):
                assert media_type == MEDIA_TYPE, (name, status)
                assert schema == {"$ref": "#/components/schemas/Problem"}


def test_codes_of_operations_are_explained_in_the_error_reference() -> None:
    explained = set(re.findall(r"`([A-Z][A-Z_]+)`", ERROR_REFERENCE.read_text()))
    problems = " ".join(one.problems for one in OPERATIONS.values())
    named = set(re.findall(r"[A-Z][A-Z_]+", problems))
    assert named - explained == set()
    conflict = list_operations()["start_replay"]["responses"]["409"]
    assert conflict["description"] == "`NOT_RETAINED`"
