"""How a route gets at the services."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Query, Request

from api.services import Services
from schemas.errors import Forbidden
from schemas.principals import Principal


def services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


def caller(request: Request) -> Principal:
    return cast(Principal, request.scope["principal"])


def whole_tenant(request: Request) -> Principal:
    """Raises Forbidden for a caller that is limited to the documents of some readers."""
    found = caller(request)
    if found.readers is not None:
        raise Forbidden(
            f"{found.id} is limited to the documents of some readers, and this concerns every document of tenant {found.tenant}.",
            code="LIMITED_TO_READERS",
            remedy="Use a credential without readers.",
        )
    return found


Use = Annotated[Services, Depends(services)]
Caller = Annotated[Principal, Depends(caller)]
"""Who calls. Everything that a route reads or changes belongs to `caller.tenant`."""
WholeTenant = Annotated[Principal, Depends(whole_tenant)]
"""The same, where what a route reads or changes cannot be limited to what some readers may read."""
Limit = Annotated[int, Query(ge=1, le=500)]
After = Annotated[str | None, Query(max_length=512, description="`next` of the page before")]
