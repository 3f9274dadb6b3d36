"""Swagger UI, served from a package without network access."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Literal

from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse, Response

router = APIRouter(include_in_schema=False)
ASSETS_DIR = Path(str(files("fastapi_offline"))) / "static"
AssetName = Literal["swagger-ui-bundle.js", "swagger-ui.css", "favicon.png"]
# Swagger UI sets styles inline; its scripts are files.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' "
    "data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)
INDEX_HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Anabranch</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="icon" href="docs/favicon.png">
</head>
<body>
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
START_SCRIPT = """SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  requestInterceptor: (request) => {
    request.headers["X-Anabranch-Request"] = "1";
    return request;
  },
});
"""


@router.get("/docs")
async def get_docs() -> HTMLResponse:
    return HTMLResponse(INDEX_HTML, headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY})


@router.get("/docs/start.js")
async def get_start_script() -> Response:
    return Response(
        START_SCRIPT,
        media_type="text/javascript",
        headers={"Cache-Control": "public, max-age=86400"},
    )


@router.get("/docs/{part}")
async def get_asset(part: AssetName) -> FileResponse:
    return FileResponse(ASSETS_DIR / part, headers={"Cache-Control": "public, max-age=86400"})
