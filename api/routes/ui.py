"""Pages for browsers: the web UI under `/ui/`, the root with its login link, and Swagger UI."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from api.services import ServicesDep
from api.sessions import NEW_LINK_REMEDY, SESSION_LIFETIME_S, get_cookie_name
from schemas.errors import Unauthenticated

router = APIRouter(include_in_schema=False)
CHECKOUT = Path(__file__).parents[2]
# The wheel contains the first folder; `make web` builds the second one.
UI_FOLDERS = (Path(__file__).parents[1] / "ui_dist", CHECKOUT / "web" / "dist")
INDEX = "index.html"
ASSETS = "assets/"
# Mantine writes its theme into style elements. Workers are files of the build, none is a blob.
# base-uri: the page states where it is served, see `_get_index`.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; worker-src 'self'; "
    "manifest-src 'self'; object-src 'none'; base-uri 'self'; form-action 'self'; "
    "frame-ancestors 'none'"
)
BASE_TAG = '<base href="{}" />'
BUILT_BASE_TAG = BASE_TAG.format("/ui/")
MAX_DEPTH = 32
PAGE_HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
</head>
<body>
{body}
</body>
</html>
"""
NOT_BUILT_HTML = """<h1>The web UI is not built</h1>
<p>This server runs, but its web UI was not built when it was installed. {remedy}</p>
<p>The API works without it: <a href="{base}../docs">API documentation</a>.</p>"""
BUILD_REMEDY = "Run <code>make web</code> in the folder of the checkout, then reload this page."
INSTALL_REMEDY = "Run <code>make web</code> in a checkout, then build and install the wheel again."


@router.api_route("/ui", methods=["GET", "HEAD"])
async def redirect_to_ui() -> RedirectResponse:
    # Relative, so that it also holds behind a proxy that serves this server below a path.
    return RedirectResponse("ui/")


@router.api_route("/ui/{path:path}", methods=["GET", "HEAD"])
async def get_ui(request: Request, path: str) -> Response:
    """Return a file of the build, or the page, which shows the screen of any other address."""
    folders: Sequence[Path] = request.app.state.ui_folders
    folder = next((folder for folder in folders if (folder / INDEX).is_file()), None)
    files = _list_files(folder, (folder / INDEX).stat().st_mtime_ns) if folder else {}
    if file := files.get(path):
        is_hashed = path.startswith(ASSETS)
        return FileResponse(
            file,
            headers={
                "Cache-Control": "public, max-age=31536000, immutable" if is_hashed else "no-cache"
            },
        )
    depth = request.scope.get("raw_path", request.scope["path"].encode()).count(b"/") - 2
    if path.startswith(ASSETS) or not 0 <= depth <= MAX_DEPTH:
        raise HTTPException(404, "The web UI has no such file.")
    return _get_index(folder, "../" * depth or "./")


@lru_cache(maxsize=4)
def _list_files(folder: Path, built_at: int) -> dict[str, Path]:
    """List the files of a build, except the page, by address.

    Only these are served: no path of a request reaches the file system.
    """
    files = (file for file in folder.rglob("*") if file.is_file() and file != folder / INDEX)
    return {file.relative_to(folder).as_posix(): file for file in files}


def _get_index(folder: Path | None, base: str) -> HTMLResponse:
    """Return the page with the relative address of `/ui/`, from which it loads everything.

    It consists of `../` only, so that nothing of the request gets into the page, and it needs no
    setting behind a proxy that serves this server below a path.
    """
    if folder is None:
        is_checkout = (CHECKOUT / "Makefile").is_file()
        remedy = BUILD_REMEDY if is_checkout else INSTALL_REMEDY
        body = NOT_BUILT_HTML.format(base=base, remedy=remedy)
        page = PAGE_HTML.format(title="Anabranch", body=body)
    else:
        page = (folder / INDEX).read_text("utf-8").replace(BUILT_BASE_TAG, BASE_TAG.format(base))
    return HTMLResponse(
        page,
        headers={"Cache-Control": "no-cache", "Content-Security-Policy": CONTENT_SECURITY_POLICY},
    )


# Relative, so that it also holds behind a proxy that serves this server below a path.
UI_ADDRESS = "ui/"
LOGIN_FAILED_HTML = """<h1>Login failed</h1>
<p>{detail}</p>
<p>{remedy}</p>"""


@router.get("/")
async def open_root(
    request: Request,
    services: ServicesDep,
    login: Annotated[str | None, Query(max_length=512)] = None,
) -> Response:
    """Redirect to the web UI; exchange the code of a login link for a session first.

    A used or expired link leads a browser with a session on, and shows a page to one without.
    """
    if login is None:
        return RedirectResponse(UI_ADDRESS)
    if services.sessions is None:
        raise Unauthenticated(
            "This server has no local token and issues no login links.", remedy=NEW_LINK_REMEDY
        )
    # Removes the code from the address bar, and so from history and bookmarks.
    response = RedirectResponse(UI_ADDRESS, 303, headers={"Cache-Control": "no-store"})
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
        body = LOGIN_FAILED_HTML.format(detail=error.detail, remedy=error.remedy)
        page = PAGE_HTML.format(title="Anabranch: login failed", body=body)
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


ASSETS_DIR = Path(str(files("fastapi_offline"))) / "static"
AssetName = Literal["swagger-ui-bundle.js", "swagger-ui.css", "favicon.png"]
# Swagger UI sets styles inline; its scripts are files.
DOCS_SECURITY_POLICY = (
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
    return HTMLResponse(INDEX_HTML, headers={"Content-Security-Policy": DOCS_SECURITY_POLICY})


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
