"""The root: a login link, and the way to the web UI."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from api.dependencies import ServicesDep
from api.sessions import NEW_LINK_REMEDY, SESSION_LIFETIME_S, get_cookie_name
from schemas.errors import Unauthenticated

router = APIRouter(include_in_schema=False)
# Relative, so that it also holds behind a proxy that serves this server below a path.
UI_ADDRESS = "ui/"
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
