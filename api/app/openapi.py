"""Complete FastAPI's OpenAPI document: credentials, roles, and the errors of each operation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from api.problems import MEDIA_TYPE, Problem
from api.roles import PUBLIC_OPERATIONS, REQUIRED_ROLES
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
# By operation id: each status, followed by its codes.
OPERATION_PROBLEMS: Mapping[str, str] = {
    "ingest": (
        "403 FORBIDDEN_KEY 404 NO_SUCH_BLOB 413 TOO_LARGE 415 UNSUPPORTED_MEDIA_TYPE 422 "
        "EMPTY_DOCUMENT FORBIDDEN_ADDRESS IDEMPOTENCY_KEY_REUSED 507 NO_SPACE"
    ),
    "ingest_status": "404 NOT_FOUND",
    "ingest_status_by_event": "404 NOT_FOUND",
    "get_document": "404 NOT_FOUND",
    "list_revisions": "404 NOT_FOUND",
    "list_chunks": "404 NOT_FOUND",
    "get_markdown": "404 NOT_FOUND",
    "amend_document": "404 NOT_FOUND 422 NOTHING_TO_AMEND",
    "delete_document": "404 NOT_FOUND",
    "document_events": "404 NOT_FOUND",
    "document_lineage": "404 NOT_FOUND",
    "get_file": "404 NOT_FOUND 416 RANGE_NOT_SATISFIABLE",
    "get_signed_file": "404 NOT_FOUND 416 RANGE_NOT_SATISFIABLE 422 LINK_EXPIRED LINK_FORGED",
    "search": (
        "404 NOT_FOUND NO_SUCH_GENERATION 413 TOO_LARGE "
        "422 FIXED_SETTING INVALID_OVERRIDE UNKNOWN_PROFILE"
    ),
    "query": (
        "404 NOT_FOUND NO_SUCH_GENERATION 413 TOO_LARGE "
        "422 FIXED_SETTING INVALID_OVERRIDE UNKNOWN_PROFILE"
    ),
    "give_feedback": "404 NOT_FOUND",
    "propose_fact": "404 NOT_FOUND 422 FACT_EXPIRED",
    "get_fact": "404 NOT_FOUND",
    "approve_fact": "404 NOT_FOUND 422 FACT_REPLACED",
    "reject_fact": "404 NOT_FOUND 422 FACT_REPLACED",
    "delete_fact": "404 NOT_FOUND",
    "get_entity": "404 NOT_FOUND 422 AMBIGUOUS_NAME",
    "amend_entity": (
        "404 NOT_FOUND 422 AMBIGUOUS_NAME NOTHING_TO_AMEND TOO_MANY_ALIASES UNKNOWN_ALIAS"
    ),
    "erase": "404 NOT_FOUND 422 FORBIDDEN_TENANT",
    "get_erasure": "404 NOT_FOUND",
    "redrive": "404 NO_SUCH_DEAD_LETTER 422 GENERATION_GONE",
    "discard_dead_letters": "404 NO_SUCH_DEAD_LETTER",
    "start_replay": "404 NOT_FOUND 409 NOT_RETAINED 422 UNKNOWN_STAGE",
    "get_replay": "404 NOT_FOUND",
    "change_replay": "404 NOT_FOUND 422 WRONG_STATE",
    "build_generation": "409 NOT_RETAINED 422 NOTHING_CHANGES SETTING_NOT_APPROVED",
    "plan_generation": "422 NOTHING_CHANGES SETTING_NOT_APPROVED",
    "get_build": "404 NO_SUCH_GENERATION",
    "pace_build": "404 NO_SUCH_GENERATION 422 GENERATION_IS_BUILT",
    "get_generation": "404 NOT_FOUND NO_SUCH_GENERATION",
    "compare_generations": "404 NO_SUCH_GENERATION 422 UNKNOWN_PROFILE",
    "examine": "404 NO_SUCH_GENERATION 422 UNKNOWN_PROFILE",
    "calibrate": "404 NO_SUCH_GENERATION 422 UNKNOWN_PROFILE",
    "get_exam": "404 NOT_FOUND",
    "promote_generation": "404 NO_SUCH_GENERATION 409 GENERATION_BEHIND NOT_CALIBRATED",
    "roll_back": "422 NO_PREVIOUS_GENERATION",
    "roll_back_from": "409 GENERATION_NOT_LIVE 422 NO_PREVIOUS_GENERATION",
    "drop_generation": "404 NO_SUCH_GENERATION 409 GENERATION_IS_LIVE",
    "get_profile": "404 NOT_FOUND",
    "reload_config": "422 INVALID_PROFILE",
    "get_run": "404 NOT_FOUND",
    "rerun_run": "404 NOT_FOUND PASSAGE_GONE RUN_ERASED",
    "diff_run": "404 NOT_FOUND RUN_ERASED",
    "run_lineage": "404 NOT_FOUND RUN_ERASED",
    "add_source": (
        "422 DSN_IN_REQUEST FORBIDDEN_FOLDER FORBIDDEN_TABLE NEEDS_KAFKA PASSWORD_IN_LOG "
        "RELATIVE_PATH SOURCE_EXISTS"
    ),
    "get_source": "404 NO_SUCH_SOURCE",
    "remove_source": "404 NO_SUCH_SOURCE",
    "reset_source": "404 NO_SUCH_SOURCE",
    "create_key": "403 FORBIDDEN_READERS",
    "rotate_key": "404 NOT_FOUND",
    "revoke_key": "404 NOT_FOUND",
}


def complete_document(document: dict[str, Any]) -> dict[str, Any]:
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
        name = operation["operationId"]
        problems = dict(COMMON_PROBLEMS)
        if name not in PUBLIC_OPERATIONS:
            operation["security"] = [{"bearer": []}]
            operation["x-needed-role"] = REQUIRED_ROLES[name]
            problems |= ACCESS_PROBLEMS
        for status, codes in _list_problems(name):
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


def _list_problems(operation: str) -> Iterator[tuple[str, str]]:
    """Yield each status with its codes."""
    status, codes = "", list[str]()
    # The final 0 flushes the codes of the last status.
    for word in (*OPERATION_PROBLEMS.get(operation, "").split(), "0"):
        if not word.isdecimal():
            codes.append(f"`{word}`")
            continue
        if codes:
            yield status, ", ".join(codes)
        status, codes = word, []
