"""Complete FastAPI's OpenAPI document: credentials, roles, and the errors of each operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.operations import PUBLIC, Operation
from api.problems import MEDIA_TYPE, Problem
from schemas.ingest import IngestRequest

CREDENTIAL_DESCRIPTION = "An API key, a JSON Web Token of the configured issuer, or the local token"
# By status. Every operation may answer these.
COMMON_PROBLEMS: Mapping[str, str] = {
    "422": "The request is invalid: `INVALID_REQUEST`, `UNKNOWN_PARAMETER`, `REPEATED_PARAMETER`",
    "4XX": "Another error of the request: `BAD_REQUEST`, `METHOD_NOT_ALLOWED`",
    "5XX": "Temporarily unavailable, retry: `BUSY`, `DATABASE_UNAVAILABLE`, `LOG_UNAVAILABLE`",
}
# By status. Every operation that requires a credential may answer these.
ACCESS_PROBLEMS: Mapping[str, str] = {
    "401": "No valid credential: `UNAUTHENTICATED`",
    "403": (
        "The credential's role, tenant or readers do not allow it: `FORBIDDEN_ROLE`, "
        "`LIMITED_TO_READERS`, `FORBIDDEN`"
    ),
    "429": "Too many failed authentications from this address: `TOO_MANY_FAILURES`",
}


def complete_document(
    document: dict[str, Any], operations: Mapping[str, Operation]
) -> dict[str, Any]:
    components = document.setdefault("components", {})
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": CREDENTIAL_DESCRIPTION}
    }
    # FastAPI does not collect models that only hand-written parts refer to.
    for model in (Problem, IngestRequest):
        components["schemas"][model.__name__] = model.model_json_schema()
    for operation in (
        operation for path in document["paths"].values() for operation in path.values()
    ):
        declared = operations[operation["operationId"]]
        problems = dict(COMMON_PROBLEMS)
        if declared.role is not PUBLIC:
            operation["security"] = [{"bearer": []}]
            operation["x-needed-role"] = declared.role
            problems |= ACCESS_PROBLEMS
        for status, codes in declared.list_problems():
            problems[status] = f"{problems[status]}, {codes}" if status in problems else codes
        # Replaces FastAPI's own description of validation errors (422), which are problems here.
        operation["responses"] |= {
            status: {
                "description": text,
                "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
            }
            for status, text in sorted(problems.items())
        }
    for name in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(name, None)
    return document
