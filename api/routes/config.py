"""Settings, the configuration schema, and profiles."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field

from api.operations import OperationRoute, operation
from api.services import ServicesDep
from schemas.models import Request
from schemas.profiles import NamedProfile, ProfileType, ReloadedConfig, SettingValue
from schemas.responses import JsonObject, Page, ResponseModel

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
    return Page[SettingValue].build(services.list_settings())


@router.get("/config/schema", tags=["config"], operation_id="get_config_schema")
@operation("reader")
async def get_config_schema(services: ServicesDep) -> ConfigSchema:
    """Get the JSON Schemas of the settings and of the profiles."""
    return ConfigSchema.model_validate(services.get_config_schema())


class LocalModelServer(ResponseModel):
    url: str
    models: list[str]


class ChatModelState(ResponseModel):
    """The model that writes answers, and those that this machine serves."""

    url: str | None
    model: str | None = Field(description="Null without a chat model: answers are quotes.")
    is_chosen: bool = Field(description="Whether it was chosen by this call.")
    can_choose: bool = Field(description="False if the settings name a chat model.")
    servers: list[LocalModelServer] = Field(description="Model servers of the API's machine.")


class ChatModelRequest(Request):
    url: str = Field(max_length=2048, description="`url` of a server in `servers`.")
    model: str = Field(max_length=200, description="One of its models.")


@router.get("/chat-model", tags=["config"], operation_id="get_chat_model")
@operation("operator")
async def get_chat_model(services: ServicesDep) -> ChatModelState:
    """Get the chat model, and find the model servers of the API's machine."""
    return ChatModelState.model_validate(await services.chat_model.describe())


@router.put("/chat-model", tags=["config"], operation_id="choose_chat_model")
@operation(
    "operator",
    problems="404 NO_LOCAL_MODEL 422 CHAT_CONFIGURED",
    audit=("chat_model.chosen", "{model}"),
)
async def choose_chat_model(body: ChatModelRequest, services: ServicesDep) -> ChatModelState:
    """Let a model of this machine write the answers, also after a restart."""
    return ChatModelState.model_validate(await services.chat_model.choose(body.url, body.model))


@router.delete("/chat-model", tags=["config"], operation_id="clear_chat_model")
@operation("operator", problems="422 CHAT_CONFIGURED", audit=("chat_model.cleared", "{model}"))
async def clear_chat_model(services: ServicesDep) -> ChatModelState:
    """Answer by quotes again, without a chat model."""
    return ChatModelState.model_validate(await services.chat_model.clear())


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
    return Page[NamedProfile].build(list(services.profiles.list_profiles()))


@router.get("/profiles/{type}/{name}", tags=["profiles"], operation_id="get_profile")
@operation("reader", problems="404 NOT_FOUND")
async def get_profile(
    profile_type: Annotated[str, Path(alias="type")], name: str, services: ServicesDep
) -> NamedProfile:
    """Get a profile with all its settings."""
    return services.profiles.describe(profile_type, name)
