"""API keys of a tenant, and the caller's identity."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request

from api.dependencies import Caller, PageCursor, PageLimit, ServicesDep
from schemas.api_keys import (
    KEY_ID_PATTERN,
    ApiKey,
    ApiKeyRequest,
    Identity,
    IssuedApiKey,
    RotationRequest,
)

router = APIRouter(tags=["keys"])
KeyId = Annotated[
    str,
    Path(pattern=KEY_ID_PATTERN, description="The part of the key between `ab_` and the secret."),
]


@router.get("/whoami", operation_id="whoami")
async def get_identity(caller: Caller) -> Identity:
    """Get the caller's identity and permissions."""
    return Identity(
        id=caller.id,
        tenant=caller.tenant,
        role=caller.role,
        readers=None if caller.readers is None else list(caller.readers),
    )


@router.post("/keys", status_code=201, operation_id="create_key")
async def create_key(
    body: ApiKeyRequest, services: ServicesDep, caller: Caller, request: Request
) -> IssuedApiKey:
    """Create a key for the caller's tenant, with at most the caller's role and readers.

    The response holds the secret, which is not stored.
    """
    return await services.api_keys.create(caller, body, request.scope.get("request_id"))


@router.get("/keys", operation_id="list_keys")
async def list_keys(
    services: ServicesDep, caller: Caller, after: PageCursor = None, limit: PageLimit = 50
) -> dict[str, Any]:
    """List the tenant's keys, the newest first, without their secrets."""
    keys, next_cursor = await services.api_keys.list_keys(caller, after=after, limit=limit)
    return {"items": [key.model_dump(mode="json") for key in keys], "next": next_cursor}


@router.post("/keys/{key_id}/rotate", operation_id="rotate_key")
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


@router.delete("/keys/{key_id}", operation_id="revoke_key")
async def revoke_key(
    key_id: KeyId, services: ServicesDep, caller: Caller, request: Request
) -> ApiKey:
    """Revoke the key from the next request on. Revoking it again changes nothing."""
    return await services.api_keys.revoke(caller, key_id, request.scope.get("request_id"))
