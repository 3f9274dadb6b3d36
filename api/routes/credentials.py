"""API keys, the caller's identity, login links and the audit trail."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field

from api.operations import OperationRoute, operation
from api.services import (
    Caller,
    FromTime,
    PageCursor,
    PageLimit,
    ServicesDep,
    UntilTime,
    WholeTenant,
)
from api.sessions import LINK_LIFETIME_S
from schemas.api_keys import (
    KEY_ID_PATTERN,
    ApiKey,
    ApiKeyRequest,
    Identity,
    IssuedApiKey,
    RotationRequest,
)
from schemas.errors import Forbidden
from schemas.principals import AuditOutcome
from schemas.responses import Page, ResponseModel, Time

router = APIRouter(route_class=OperationRoute)
KeyId = Annotated[
    str,
    Path(pattern=KEY_ID_PATTERN, description="The part of the key between `ab_` and the secret."),
]


class AuditEvent(ResponseModel):
    """An administrative action."""

    audit_id: UUID
    tenant: str
    occurred_at: Time
    actor: str = Field(description="The caller.")
    role: str
    action: str = Field(description="The action, such as `source.added`.")
    subject: str | None = Field(description="What it concerned.")
    request_id: str | None
    outcome: str = Field(description="`done`, `refused` or an error code.")


class LoginLink(ResponseModel):
    """Opens a session of the operator, once."""

    url: str = Field(description="Relative, unless `API__PUBLIC_URL` is set.")
    expires_at: datetime


@router.get("/whoami", tags=["keys"], operation_id="whoami")
@operation("reader")
async def get_identity(caller: Caller) -> Identity:
    """Get the caller's identity and permissions."""
    return Identity(
        id=caller.id,
        tenant=caller.tenant,
        role=caller.role,
        readers=None if caller.readers is None else list(caller.readers),
    )


@router.post("/keys", tags=["keys"], status_code=201, operation_id="create_key")
@operation("admin", problems="403 FORBIDDEN_READERS")
async def create_key(
    body: ApiKeyRequest, services: ServicesDep, caller: Caller, request: Request
) -> IssuedApiKey:
    """Create a key for the caller's tenant, with at most the caller's role and readers.

    The response holds the secret, which is not stored.
    """
    return await services.api_keys.create(caller, body, request.scope.get("request_id"))


@router.get("/keys", tags=["keys"], operation_id="list_keys")
@operation("admin")
async def list_keys(
    services: ServicesDep, caller: Caller, after: PageCursor = None, limit: PageLimit = 50
) -> Page[ApiKey]:
    """List the tenant's keys, the newest first, without their secrets.

    A caller that is limited to readers sees the keys that permit no more than its own.
    """
    page = await services.api_keys.list_keys(caller, after=after, limit=limit)
    return Page[ApiKey].build(*page)


@router.post("/keys/{key_id}/rotate", tags=["keys"], operation_id="rotate_key")
@operation("admin", problems="404 NOT_FOUND")
async def rotate_key(
    key_id: KeyId,
    services: ServicesDep,
    caller: Caller,
    request: Request,
    body: RotationRequest | None = None,
) -> IssuedApiKey:
    """Give the key a new secret. The old one is rejected at once, or after `grace_s` seconds."""
    return await services.api_keys.rotate(
        caller, key_id, body or RotationRequest(), request.scope.get("request_id")
    )


@router.delete("/keys/{key_id}", tags=["keys"], operation_id="revoke_key")
@operation("admin", problems="404 NOT_FOUND")
async def revoke_key(
    key_id: KeyId, services: ServicesDep, caller: Caller, request: Request
) -> ApiKey:
    """Revoke the key from the next request on. Revoking it again changes nothing."""
    return await services.api_keys.revoke(caller, key_id, request.scope.get("request_id"))


@router.post("/login-links", tags=["login"], status_code=201, operation_id="create_login_link")
@operation("operator", audit=("login_link.created", "until {expires_at}"))
async def create_login_link(services: ServicesDep, caller: Caller) -> LoginLink:
    """Create a login link that can be opened once, within ten minutes. Requires the local token."""
    # The session stands for the local token, so only its holder may open one.
    if caller.id != "local" or services.sessions is None:
        raise Forbidden(
            f"{caller.id} cannot open a session of the operator.",
            remedy="Use the token of `anabranch up`, or the one in ANABRANCH_API__TOKEN.",
        )
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=LINK_LIFETIME_S)
    return LoginLink(
        url=f"{services.public_url}/?login={services.sessions.make_code()}", expires_at=expires
    )


@router.get("/audit", tags=["audit"], operation_id="list_audit")
@operation("admin")
async def list_audit_events(
    services: ServicesDep,
    caller: WholeTenant,
    text: Annotated[
        str | None, Query(min_length=1, max_length=1024, description="In any field of the action.")
    ] = None,
    actor: Annotated[str | None, Query(max_length=1024)] = None,
    action: Annotated[str | None, Query(max_length=64)] = None,
    outcome: Annotated[
        AuditOutcome | None, Query(description="`failed`: with any code of an error.")
    ] = None,
    since: FromTime = None,
    until: UntilTime = None,
    after: PageCursor = None,
    limit: PageLimit = 50,
) -> Page[AuditEvent]:
    """List administrative actions, the latest first.

    An operator who acts for no named tenant sees those of all tenants.
    """
    sees_all_tenants = caller.role == "operator" and caller.home_tenant is None
    page = await services.audit_events.list_events(
        None if sees_all_tenants else caller.tenant,
        after=after,
        limit=limit,
        text=text,
        actor=actor,
        action=action,
        outcome=outcome,
        since=since,
        until=until,
    )
    return Page[AuditEvent].build(*page)
