"""The API's documentation as a page that needs no network: Swagger UI, from a package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Literal

from fastapi import APIRouter
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse

router = APIRouter(include_in_schema=False)
PARTS = Path(str(files("fastapi_offline"))) / "static"
Part = Literal["swagger-ui-bundle.js", "swagger-ui.css", "favicon.png"]


@router.get("/")
async def begin() -> RedirectResponse:
    """Whoever opens the server's address wants to know what it can do."""
    return RedirectResponse("/docs")


@router.get("/docs")
async def manual() -> HTMLResponse:
    return get_swagger_ui_html(
        openapi_url="/openapi.json",
        title="Anabranch",
        swagger_js_url="/docs/swagger-ui-bundle.js",
        swagger_css_url="/docs/swagger-ui.css",
        swagger_favicon_url="/docs/favicon.png",
    )


@router.get("/docs/{part}")
async def part(part: Part) -> FileResponse:
    return FileResponse(PARTS / part, headers={"Cache-Control": "public, max-age=86400"})
