"""FastAPI dependencies: services, caller and paging parameters."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Query, Request

from api.services import Services
from schemas.errors import Forbidden
from schemas.principals import Principal
from schemas.timestamps import Timestamp


# Asynchronous, although nothing is awaited: FastAPI runs plain functions in threads, and switching
# there and back took a tenth of the API's CPU for an upload.
async def get_services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


async def get_caller(request: Request) -> Principal:
    return cast(Principal, request.scope["principal"])


async def require_whole_tenant(request: Request) -> Principal:
    """Raises Forbidden for a caller that is restricted to the documents of some readers."""
    principal = await get_caller(request)
    # Counts and lists of the whole tenant would reveal documents of other readers.
    if principal.readers is not None:
        raise Forbidden(
            f"{principal.id} is restricted to some readers' documents; this operation concerns "
            f"all of tenant {principal.tenant}.",
            code="LIMITED_TO_READERS",
            remedy="Use a credential without readers.",
        )
    return principal


ServicesDep = Annotated[Services, Depends(get_services)]
# Everything that a route reads or changes belongs to `caller.tenant`.
Caller = Annotated[Principal, Depends(get_caller)]
# For operations that cannot be restricted to the documents of some readers.
WholeTenant = Annotated[Principal, Depends(require_whole_tenant)]
IdPrefix = Annotated[
    str | None,
    Query(pattern="^(-?[0-9a-fA-F]){4,32}-?$", description="First digits of the id, at least 4."),
]
PageLimit = Annotated[int, Query(ge=1, le=500)]
RevisionNumber = Annotated[
    int | None, Query(ge=1, le=2**31 - 1, description="One revision of the document.")
]
FromTime = Annotated[
    Timestamp | None,
    Query(alias="from", description="At this time or later. UTC unless a zone is given."),
]
UntilTime = Annotated[Timestamp | None, Query(alias="to", description="Before this time.")]
PageCursor = Annotated[str | None, Query(max_length=512, description="`next` of the previous page")]
