"""Settings, the configuration schema, and profiles."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field

from api.dependencies import ServicesDep
from api.operations import OperationRoute, operation
from api.responses import JsonObject, Page, ResponseModel
from schemas.profiles import NamedProfile, ProfileType, ReloadedConfig
from schemas.setting_values import SettingValue

router = APIRouter(route_class=OperationRoute)


class ConfigSchema(ResponseModel):
    """JSON Schemas."""

    settings: JsonObject = Field(description="Of the settings file.")
    profile: JsonObject = Field(description="Of a workflow profile.")
    profiles: dict[ProfileType, JsonObject] = Field(description="Of the profiles of each type.")


@router.get("/config", tags=["config"], operation_id="list_settings")
@operation("operator")
async def list_settings(services: ServicesDep) -> Page[SettingValue]:
    """List the settings that this API process uses, with their origin and without secrets."""
    return Page[SettingValue](items=services.list_settings(), next=None)


@router.get("/config/schema", tags=["config"], operation_id="get_config_schema")
@operation("reader")
async def get_config_schema(services: ServicesDep) -> ConfigSchema:
    """Get the JSON Schemas of the settings and of the profiles."""
    return ConfigSchema.model_validate(services.get_config_schema())


@router.post("/reload-config", tags=["config"], operation_id="reload_config")
@operation("operator", problems="422 INVALID_PROFILE", audit=("config.reloaded", "{changed}"))
async def reload_config(services: ServicesDep) -> ReloadedConfig:
    """Read the files of the profiles again. Every API process uses them within a second.

    If a file is invalid, all profiles stay as they were.
    """
    return await services.reload_profiles()


@router.get("/profiles", tags=["profiles"], operation_id="list_profiles")
@operation("reader")
async def list_profiles(services: ServicesDep) -> Page[NamedProfile]:
    """List the profiles of every type."""
    return Page[NamedProfile](items=list(services.profiles.list_profiles()), next=None)


@router.get("/profiles/{type}/{name}", tags=["profiles"], operation_id="get_profile")
@operation("reader", problems="404 NOT_FOUND")
async def get_profile(
    profile_type: Annotated[str, Path(alias="type")], name: str, services: ServicesDep
) -> NamedProfile:
    """Get a profile with all its settings."""
    return services.profiles.describe(profile_type, name)
