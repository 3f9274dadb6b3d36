"""The application: routes, one file a resource, around the services that are handed in."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, FastAPI

from api import problems
from api.authentication import Authentication
from api.guard import clean_input
from api.middleware import BodyLimit, RequestId, Slots
from api.routes import (
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
    lineage,
    manual,
    past_runs,
    profiles,
    questions,
    replays,
    runs,
    sources,
)
from api.services import Services

VERSION = "0.1.0"
RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "A mistake in the request", "content": {problems.MEDIA_TYPE: {"schema": problems.Problem}}},
    "5XX": {"description": "Not now: try again", "content": {problems.MEDIA_TYPE: {"schema": problems.Problem}}},
}


def create_app(services: Services, *, most_requests: int = 256, requests_per_address: int = 128, min_upload_rate: int = 1024) -> FastAPI:
    """Answers as soon as the services do; starting and stopping them is the caller's."""
    app = routes_only()
    app.state.services = services
    app.add_middleware(Authentication, authenticate=services.authenticate)
    app.add_middleware(BodyLimit, max_bytes=services.max_bytes, min_rate=min_upload_rate)
    app.add_middleware(Slots, most=most_requests, most_of_one=requests_per_address)
    app.add_middleware(RequestId)
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
        config,
    ):
        app.include_router(resource.router, prefix="/v1", dependencies=[Depends(clean_input)])
    app.include_router(health.router)
    app.include_router(manual.router)
    problems.install(app)
    return app
