"""API keys of a tenant, and who the caller is."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request

from api.access import After, Caller, Limit, Use
from schemas.api_keys import KEY_ID, ApiKey, ApiKeyRequest, Identity, IssuedApiKey, RotationRequest

router = APIRouter(tags=["keys"])
KeyId = Annotated[str, Path(pattern=KEY_ID, description="the part of the key between `ab_` and the secret")]


@router.get("/whoami", operation_id="whoami")
async def whoami(caller: Caller) -> Identity:
    """Who the credential belongs to, and what it allows."""
    return Identity(id=caller.id, tenant=caller.tenant, role=caller.role, readers=None if caller.readers is None else list(caller.readers))


@router.post("/keys", status_code=201, operation_id="create_key")
async def create(wanted: ApiKeyRequest, use: Use, caller: Caller, request: Request) -> IssuedApiKey:
    """Creates a key for the caller's tenant, with at most the caller's role and readers. The answer holds the secret, which is not stored."""
    return await use.keys.create(caller, wanted, request.scope.get("request_id"))


@router.get("/keys", operation_id="list_keys")
async def list_keys(use: Use, caller: Caller, after: After = None, limit: Limit = 50) -> dict[str, Any]:
    """Lists the tenant's keys, the newest first, without their secrets."""
    keys, following = await use.keys.list_keys(caller, after=after, limit=limit)
    return {"items": [key.model_dump(mode="json") for key in keys], "next": following}


@router.post("/keys/{key_id}/rotate", operation_id="rotate_key")
async def rotate(key_id: KeyId, use: Use, caller: Caller, request: Request, wanted: RotationRequest | None = None) -> IssuedApiKey:
    """Gives the key a new secret. The old one is refused at once, or after `grace_s` seconds."""
    return await use.keys.rotate(caller, key_id, wanted or RotationRequest(), request.scope.get("request_id"))


@router.delete("/keys/{key_id}", operation_id="revoke_key")
async def revoke(key_id: KeyId, use: Use, caller: Caller, request: Request) -> ApiKey:
    """Refuses the key from the next request on. Revoking it again changes nothing."""
    return await use.keys.revoke(caller, key_id, request.scope.get("request_id"))
