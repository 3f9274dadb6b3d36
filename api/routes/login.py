"""One-time login links for browsers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fastapi import APIRouter
from pydantic import BaseModel, Field

from api.audit import AuditedRoute
from api.dependencies import Caller, ServicesDep
from api.sessions import LINK_LIFETIME_S
from schemas.errors import Forbidden

router = APIRouter(tags=["login"], route_class=AuditedRoute)


class LoginLink(BaseModel):
    """Opens a session of the operator, once."""

    url: str = Field(description="Relative, unless `API__PUBLIC_URL` is set.")
    expires_at: datetime


@router.post("/login-links", status_code=201, operation_id="create_login_link")
async def create_login_link(services: ServicesDep, caller: Caller) -> LoginLink:
    """Create a login link that can be opened once, within ten minutes. Requires the local token."""
    if caller.id != "local" or services.sessions is None:
        raise Forbidden(
            f"{caller.id} cannot open a session of the operator.",
            remedy="Use the token of `anabranch up`, or the one in ANABRANCH_API__TOKEN.",
        )
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=LINK_LIFETIME_S)
    return LoginLink(
        url=f"{services.public_url}/?login={services.sessions.make_code()}", expires_at=expires
    )
