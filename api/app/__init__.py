"""Create the application: middleware and routes, one file per resource, around services."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, FastAPI

from api import problems
from api.agents import route as agent_route
from api.app.openapi import complete_document
from api.authentication import AuthenticationMiddleware
from api.browser_guard import BrowserGuardMiddleware, SecurityHeadersMiddleware
from api.middleware import (
    BasePathMiddleware,
    BodyLimitMiddleware,
    ConcurrencyLimitMiddleware,
    RequestIdMiddleware,
)
from api.operations import OperationRoute, require_role
from api.routes import (
    collections,
    config,
    credentials,
    dead_letters,
    docs,
    documents,
    entities,
    erasures,
    events,
    exams,
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
    replays,
    root,
    runs,
    sources,
    ui,
)
from api.services import Services
from api.sessions import SessionCookieMiddleware
from api.validation import validate_input

VERSION = "0.1.0"


RESOURCES = (
    ingest,
    documents,
    collections,
    files,
    queries,
    facts,
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
    router.include_router(docs.router)
    router.include_router(root.router)
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
        title="Anabranch",
        version=VERSION,
        description=description,
        docs_url=None,
        redoc_url=None,
    )
    # Each resource has one address: other spellings are 404.
    app.router.redirect_slashes = False
    # As they are, not by `include_router`: FastAPI resolves routes once for each inclusion,
    # at its first request, and all applications of a process have the same ones.
    app.router.routes.extend(ROUTES.routes)
    problems.install_error_handlers(app)
    app.openapi = lambda: complete_document(FastAPI.openapi(app), OPERATIONS)  # type: ignore[method-assign]
    return app
