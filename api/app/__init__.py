"""Create the application: routes, one file per resource, and middleware, around the given services."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, FastAPI

from api import problems
from api.authentication import AuthenticationMiddleware
from api.browser_guard import BrowserGuardMiddleware, SecurityHeadersMiddleware
from api.middleware import BodyLimitMiddleware, ConcurrencyLimitMiddleware, RequestIdMiddleware
from api.roles import PUBLIC_OPERATIONS, REQUIRED_ROLES, require_role
from api.routes import (
    config,
    credentials,
    dead_letters,
    docs,
    documents,
    entities,
    erasures,
    events,
    files,
    generations,
    health,
    ingest,
    lineage,
    queries,
    replays,
    runs,
    sources,
)
from api.services import Services
from api.sessions import SessionCookieMiddleware
from api.validation import validate_input

VERSION = "0.1.0"
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "description": "The request is invalid",
        "content": {problems.MEDIA_TYPE: {"schema": problems.PROBLEM_SCHEMA}},
    },
    "5XX": {
        "description": "Temporarily unavailable: retry",
        "content": {problems.MEDIA_TYPE: {"schema": problems.PROBLEM_SCHEMA}},
    },
}

CREDENTIAL_DESCRIPTION = "An API key, a JSON Web Token of the configured issuer, or the local token"
REFUSAL_RESPONSES: dict[str, Any] = {
    status: {
        "description": description,
        "content": {problems.MEDIA_TYPE: {"schema": problems.PROBLEM_SCHEMA}},
    }
    for status, description in {
        "401": "No valid credential",
        "403": "The credential's role, tenant or readers do not allow it",
        "429": "Too many failed authentications from this address",
    }.items()
}


def create_app(
    services: Services,
    *,
    max_requests: int = 256,
    max_requests_per_address: int = 128,
    min_upload_bytes_per_s: int = 1024,
) -> FastAPI:
    """Create the application. The caller starts and stops the services."""
    app = create_routes()
    app.state.services = services
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
    return app


def create_routes() -> FastAPI:
    """Create the routes without services, which is enough for the OpenAPI document."""
    description = "Event-sourced streaming ingestion and retrieval."
    # FastAPI's own documentation pages fetch scripts from the network; api.routes.docs serves them locally.
    app = FastAPI(
        title="Anabranch",
        version=VERSION,
        description=description,
        responses=ERROR_RESPONSES,
        docs_url=None,
        redoc_url=None,
    )
    app.router.redirect_slashes = False
    for resource in (
        ingest,
        documents,
        files,
        queries,
        entities,
        erasures,
        replays,
        dead_letters,
        generations,
        runs,
        lineage,
        events,
        sources,
        credentials,
        config,
    ):
        app.include_router(
            resource.router,
            prefix="/v1",
            dependencies=[Depends(validate_input), Depends(require_role)],
        )
    app.include_router(health.router, dependencies=[Depends(validate_input), Depends(require_role)])
    app.include_router(docs.router)
    problems.install_error_handlers(app)
    app.openapi = lambda: _add_security(FastAPI.openapi(app))  # type: ignore[method-assign]
    return app


def _add_security(document: dict[str, Any]) -> dict[str, Any]:
    """Add the credential and the role that each operation requires."""
    document.setdefault("components", {})["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": CREDENTIAL_DESCRIPTION}
    }
    for operation in (
        operation for path in document["paths"].values() for operation in path.values()
    ):
        if (name := operation["operationId"]) not in PUBLIC_OPERATIONS:
            operation["security"] = [{"bearer": []}]
            operation["x-needed-role"] = REQUIRED_ROLES[name]
            operation["responses"] |= REFUSAL_RESPONSES
    return document
