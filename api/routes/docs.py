"""Swagger UI, served from a package without network access."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from api.dependencies import ServicesDep
from api.sessions import NEW_LINK_REMEDY, SESSION_LIFETIME_S, get_cookie_name
from schemas.errors import Unauthenticated

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
<link rel="stylesheet" href="/docs/swagger-ui.css">
<link rel="icon" href="/docs/favicon.png">
</head>
<body>
<div id="swagger-ui"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""
LOGIN_FAILED_HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Anabranch: login failed</title>
</head>
<body>
<h1>Login failed</h1>
<p>{detail}</p>
<p>{remedy}</p>
</body>
</html>
"""
START_SCRIPT = """SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  requestInterceptor: (request) => {
    request.headers["X-Anabranch-Request"] = "1";
    return request;
  },
});
"""


@router.get("/")
async def open_root(
    request: Request,
    services: ServicesDep,
    login: Annotated[str | None, Query(max_length=512)] = None,
) -> Response:
    """Redirect to the documentation; exchange the code of a login link for a session first.

    A used or expired link leads a browser with a session on, and shows a page to one without.
    """
    if login is None:
        return RedirectResponse("/docs")
    if services.sessions is None:
        raise Unauthenticated(
            "This server has no local token and issues no login links.", remedy=NEW_LINK_REMEDY
        )
    # Removes the code from the address bar, and so from history and bookmarks.
    response = RedirectResponse("/", 303, headers={"Cache-Control": "no-store"})
    # Browsers drop secure cookies that arrive over plain HTTP.
    secure = services.public_url.startswith("https://")
    try:
        cookie = services.sessions.exchange_code(login)
    except Unauthenticated as error:
        # The middleware adds the token to requests of a valid session.
        if request.headers.get("authorization") == f"Bearer {services.sessions.token}":
            return response
        if "text/html" not in request.headers.get("accept", ""):
            raise
        page = LOGIN_FAILED_HTML.format(detail=error.detail, remedy=error.remedy)
        return HTMLResponse(page, 401, headers={"Cache-Control": "no-store"})
    response.set_cookie(
        get_cookie_name(request.scope),
        cookie,
        max_age=SESSION_LIFETIME_S,
        httponly=True,
        # Pages of other sites cannot send the cookie at all.
        samesite="strict",
        secure=secure,
    )
    return response


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
