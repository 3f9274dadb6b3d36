"""The configuration schema, and retrieval profiles."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field

from api.dependencies import ServicesDep
from api.responses import JsonObject, Page, ResponseModel
from schemas.errors import unknown_resource_error
from schemas.profiles import Profile

router = APIRouter()


class ConfigSchema(ResponseModel):
    """JSON Schemas."""

    settings: JsonObject = Field(description="Of the settings file.")
    profile: JsonObject = Field(description="Of a retrieval profile.")


@router.get("/config/schema", tags=["config"], operation_id="get_config_schema")
async def get_config_schema(services: ServicesDep) -> ConfigSchema:
    """Get the JSON Schemas of the settings and of a profile."""
    return ConfigSchema.model_validate(services.get_config_schema())


@router.get("/profiles", tags=["profiles"], operation_id="list_profiles")
async def list_profiles(services: ServicesDep) -> Page[Profile]:
    """List profiles."""
    return Page[Profile](items=list(services.list_profiles()), next=None)


@router.get("/profiles/retrieval/{name}", tags=["profiles"], operation_id="get_profile")
async def get_profile(name: str, services: ServicesDep) -> Profile:
    """Get a profile."""
    for available_profile in services.list_profiles():
        if available_profile.name == name:
            return available_profile
    raise unknown_resource_error("profile", repr(name), "List profiles with GET /v1/profiles.")
