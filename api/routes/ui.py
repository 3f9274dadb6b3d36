"""Serve the built web UI under `/ui/`: a single page with hashed assets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response

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
NOT_BUILT_HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Anabranch</title>
</head>
<body>
<h1>The web UI is not built</h1>
<p>This server runs, but its web UI was not built when it was installed. {remedy}</p>
<p>The API works without it: <a href="{base}../docs">API documentation</a>.</p>
</body>
</html>
"""
BUILD_REMEDY = "Run <code>make web</code> in the folder of the checkout, then reload this page."
INSTALL_REMEDY = (
    "Run <code>pip install --force-reinstall --no-deps anabranch</code>, then restart it."
)


@router.api_route("/ui", methods=["GET", "HEAD"])
async def redirect_to_ui() -> RedirectResponse:
    # Relative, so that it also holds behind a proxy that serves this server below a path.
    return RedirectResponse("ui/")


@router.api_route("/ui/{path:path}", methods=["GET", "HEAD"])
async def get_ui(request: Request, path: str) -> Response:
    """Return a file of the build, or the page, which shows the screen of any other address."""
    folder = find_ui_folder(request.app.state.ui_folders)
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


def find_ui_folder(folders: Sequence[Path]) -> Path | None:
    return next((folder for folder in folders if (folder / INDEX).is_file()), None)


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
        page = NOT_BUILT_HTML.format(
            base=base, remedy=BUILD_REMEDY if is_checkout else INSTALL_REMEDY
        )
    else:
        page = (folder / INDEX).read_text("utf-8").replace(BUILT_BASE_TAG, BASE_TAG.format(base))
    return HTMLResponse(
        page,
        headers={
            "Cache-Control": "no-cache",
            "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        },
    )
