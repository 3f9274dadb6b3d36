"""Retrieval profiles."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from api.dependencies import ServicesDep
from schemas.errors import unknown_resource_error
from schemas.profiles import Profile

router = APIRouter(tags=["profiles"])


@router.get("/profiles", operation_id="list_profiles")
async def list_profiles(services: ServicesDep) -> dict[str, Any]:
    """List profiles."""
    return {
        "items": [profile.model_dump(mode="json") for profile in services.list_profiles()],
        "next": None,
    }


@router.get("/profiles/retrieval/{name}", operation_id="get_profile")
async def get_profile(name: str, services: ServicesDep) -> Profile:
    """Get a profile."""
    for available_profile in services.list_profiles():
        if available_profile.name == name:
            return available_profile
    raise unknown_resource_error("profile", repr(name), "List profiles with GET /v1/profiles.")
