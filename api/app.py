"""The application: routes, one file a resource, around the services that are handed in."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, FastAPI

from api import problems
from api.authentication import Authentication
from api.browser_guard import BrowserGuard, SecurityHeaders
from api.guard import clean_input
from api.middleware import BodyLimit, RequestId, Slots
from api.roles import NEEDED_ROLES, PUBLIC, require_role
from api.routes import (
    audit,
    builds,
    collections,
    config,
    dead_letters,
    documents,
    entities,
    erasures,
    events,
    feedback,
    files,
    generations,
    health,
    ingest,
    keys,
    lineage,
    login,
    manual,
    past_runs,
    profiles,
    questions,
    replays,
    runs,
    sources,
)
from api.services import Services
from api.sessions import SessionCookie

VERSION = "0.1.0"
RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "A mistake in the request", "content": {problems.MEDIA_TYPE: {"schema": problems.Problem}}},
    "5XX": {"description": "Not now: try again", "content": {problems.MEDIA_TYPE: {"schema": problems.Problem}}},
}

CREDENTIAL = "An API key, a JSON Web Token of the configured issuer, or the local token"
REFUSALS: dict[str, Any] = {
    status: {"description": description, "content": {problems.MEDIA_TYPE: {"schema": problems.Problem}}}
    for status, description in {
        "401": "No valid credential",
        "403": "The credential's role, tenant or readers do not allow it",
        "429": "Too many failed authentications from this address",
    }.items()
}


def create_app(services: Services, *, most_requests: int = 256, requests_per_address: int = 128, min_upload_rate: int = 1024) -> FastAPI:
    """Answers as soon as the services do; starting and stopping them is the caller's."""
    app = routes_only()
    app.state.services = services
    app.add_middleware(Authentication, authenticate=services.authenticate, max_failures=services.max_failures, count_failure=services.authentication_failed)
    app.add_middleware(BodyLimit, max_bytes=services.max_bytes, min_rate=min_upload_rate)
    app.add_middleware(Slots, most=most_requests, most_of_one=requests_per_address)
    app.add_middleware(SessionCookie, sessions=services.sessions)
    app.add_middleware(BrowserGuard, hosts=services.hosts)
    app.add_middleware(RequestId)
    app.add_middleware(SecurityHeaders)
    return app


def routes_only() -> FastAPI:
    """Without services: enough for its OpenAPI document."""
    description = "Event-sourced streaming ingestion and retrieval."
    # Its own pages would fetch scripts from the network.
    app = FastAPI(title="Anabranch", version=VERSION, description=description, responses=RESPONSES, docs_url=None, redoc_url=None)
    app.router.redirect_slashes = False
    for resource in (
        ingest,
        documents,
        files,
        questions,
        feedback,
        collections,
        entities,
        erasures,
        replays,
        builds,
        generations,
        profiles,
        runs,
        past_runs,
        lineage,
        events,
        dead_letters,
        sources,
        keys,
        audit,
        login,
        config,
    ):
        app.include_router(resource.router, prefix="/v1", dependencies=[Depends(clean_input), Depends(require_role)])
    app.include_router(health.router, dependencies=[Depends(require_role)])
    app.include_router(manual.router)
    problems.install(app)
    app.openapi = lambda: _with_security(FastAPI.openapi(app))  # type: ignore[method-assign]
    return app


def _with_security(document: dict[str, Any]) -> dict[str, Any]:
    """Adds the credential and the role that each operation needs."""
    document.setdefault("components", {})["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer", "description": CREDENTIAL}}
    for operation in (operation for path in document["paths"].values() for operation in path.values()):
        if (name := operation["operationId"]) not in PUBLIC:
            operation["security"] = [{"bearer": []}]
            operation["x-needed-role"] = NEEDED_ROLES[name]
            operation["responses"] |= REFUSALS
    return document
