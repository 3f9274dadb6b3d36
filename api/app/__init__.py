"""Create the application: middleware and routes, one file per resource, around services.

FastAPI's OpenAPI document is completed by credentials, roles, and the errors of each operation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, FastAPI

from api import problems
from api.agents import route as agent_route
from api.middleware import (
    AuthenticationMiddleware,
    BasePathMiddleware,
    BodyLimitMiddleware,
    CompressionMiddleware,
    ConcurrencyLimitMiddleware,
    RequestIdMiddleware,
)
from api.operations import PUBLIC, Operation, OperationRoute, require_role, validate_input
from api.problems import MEDIA_TYPE, Problem
from api.routes import (
    collections,
    config,
    credentials,
    dead_letters,
    documents,
    entities,
    erasures,
    events,
    exams,
    experiments,
    facts,
    files,
    generations,
    health,
    ingest,
    judgements,
    lineage,
    monitoring,
    openai,
    queries,
    questions,
    replays,
    runs,
    sources,
    ui,
)
from api.services import Services
from api.sessions import BrowserGuardMiddleware, SecurityHeadersMiddleware, SessionCookieMiddleware
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


VERSION = "0.1.0"


RESOURCES = (
    ingest,
    documents,
    collections,
    files,
    queries,
    questions,
    facts,
    experiments,
    entities,
    erasures,
    replays,
    dead_letters,
    generations,
    exams,
    judgements,
    runs,
    lineage,
    events,
    monitoring,
    sources,
    credentials,
    config,
)
OPERATIONS = {
    route.operation_id or "": route.operation
    for resource in (*RESOURCES, health)
    for route in resource.router.routes
    if isinstance(route, OperationRoute)
}
"""By operation id."""


def include_resources() -> APIRouter:
    router = APIRouter()
    checks = [Depends(validate_input), Depends(require_role)]
    for resource in RESOURCES:
        router.include_router(resource.router, prefix="/v1", dependencies=checks)
    router.include_router(health.router, dependencies=checks)
    router.include_router(openai.router, dependencies=checks)
    # The calls that an agent's message leads to are validated.
    router.include_router(agent_route.router, dependencies=[Depends(require_role)])
    router.include_router(ui.router)
    return router


ROUTES = include_resources()


def create_app(
    services: Services,
    *,
    max_requests: int = 256,
    max_requests_per_address: int = 128,
    min_upload_bytes_per_s: int = 1024,
    ui_folders: Sequence[Path] = ui.UI_FOLDERS,
) -> FastAPI:
    """Create the application. The caller starts and stops the services."""
    app = create_routes()
    app.state.services = services
    # The first that holds a build is served.
    app.state.ui_folders = ui_folders
    # What is added last runs first: headers and the request id come before any refusal.
    app.add_middleware(CompressionMiddleware)
    app.add_middleware(
        AuthenticationMiddleware,
        authenticate=services.authenticate,
        max_failures=services.max_failures_per_minute,
        count_failure=services.count_failed_authentication,
    )
    app.add_middleware(
        BodyLimitMiddleware,
        max_bytes=services.max_upload_bytes,
        min_bytes_per_s=min_upload_bytes_per_s,
    )
    app.add_middleware(
        ConcurrencyLimitMiddleware,
        max_requests=max_requests,
        max_requests_per_address=max_requests_per_address,
    )
    app.add_middleware(SessionCookieMiddleware, sessions=services.sessions)
    app.add_middleware(BrowserGuardMiddleware, hosts=services.hostnames)
    app.add_middleware(RequestIdMiddleware)
    app.add_middleware(SecurityHeadersMiddleware)
    app.add_middleware(BasePathMiddleware, base_path=urlsplit(services.public_url).path)
    return app


def create_routes() -> FastAPI:
    """Create the routes without services, which is enough for the OpenAPI document."""
    description = "Event-sourced streaming ingestion and retrieval."
    # FastAPI's own documentation pages fetch scripts from the network; api.routes.docs serves them
    # locally.
    app = FastAPI(
        title="Anabranch", version=VERSION, description=description, docs_url=None, redoc_url=None
    )
    # Each resource has one address: other spellings are 404.
    app.router.redirect_slashes = False
    # As they are, not by `include_router`: FastAPI resolves routes once for each inclusion,
    # at its first request, and all applications of a process have the same ones.
    app.router.routes.extend(ROUTES.routes)
    problems.install_error_handlers(app)
    app.openapi = lambda: complete_document(FastAPI.openapi(app), OPERATIONS)  # type: ignore[method-assign]
    return app
