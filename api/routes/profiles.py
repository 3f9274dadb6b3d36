"""Named ways of answering."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from api.access import Use
from schemas.errors import NotFound
from schemas.profiles import Profile

router = APIRouter(tags=["profiles"])


@router.get("/profiles", operation_id="list_profiles")
async def profiles(use: Use) -> dict[str, Any]:
    return {"items": [profile.model_dump(mode="json") for profile in use.profiles()], "next": None}


@router.get("/profiles/retrieval/{name}", operation_id="get_profile")
async def profile(name: str, use: Use) -> Profile:
    for found in use.profiles():
        if found.name == name:
            return found
    raise NotFound(f"no profile {name!r}", remedy="GET /v1/profiles lists them.")
