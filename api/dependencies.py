"""How a route gets at the services."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Query, Request

from api.services import Services
from schemas.errors import Forbidden
from schemas.principals import Principal


def get_services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


def get_caller(request: Request) -> Principal:
    return cast(Principal, request.scope["principal"])


def require_whole_tenant(request: Request) -> Principal:
    """Raises Forbidden for a caller that is limited to the documents of some readers."""
    principal = get_caller(request)
    if principal.readers is not None:
        raise Forbidden(
            f"{principal.id} is limited to the documents of some readers, and this concerns every document of tenant {principal.tenant}.",
            code="LIMITED_TO_READERS",
            remedy="Use a credential without readers.",
        )
    return principal


ServicesDep = Annotated[Services, Depends(get_services)]
Caller = Annotated[Principal, Depends(get_caller)]
"""Who calls. Everything that a route reads or changes belongs to `caller.tenant`."""
WholeTenant = Annotated[Principal, Depends(require_whole_tenant)]
"""The same, where what a route reads or changes cannot be limited to what some readers may read."""
PageLimit = Annotated[int, Query(ge=1, le=500)]
PageCursor = Annotated[str | None, Query(max_length=512, description="`next` of the page before")]
