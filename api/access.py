"""How a route gets at the services."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Query, Request

from api.services import Services
from schemas.principals import Principal


def services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


def caller(request: Request) -> Principal:
    return cast(Principal, request.scope["principal"])


Use = Annotated[Services, Depends(services)]
Caller = Annotated[Principal, Depends(caller)]
"""Who calls. Everything that a route reads or changes belongs to `caller.tenant`."""
Limit = Annotated[int, Query(ge=1, le=500)]
After = Annotated[str | None, Query(max_length=512, description="`next` of the page before")]
