"""How a route gets at the services."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Query, Request

from api.services import Services


def services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


Use = Annotated[Services, Depends(services)]
Limit = Annotated[int, Query(ge=1, le=500)]
After = Annotated[str | None, Query(max_length=512, description="`next` of the page before")]
