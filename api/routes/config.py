"""The configuration schema."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from api.dependencies import ServicesDep

router = APIRouter(tags=["config"])


@router.get("/config/schema", operation_id="get_config_schema")
async def get_config_schema(services: ServicesDep) -> dict[str, Any]:
    """Get the JSON Schemas of the settings and of a profile."""
    return services.get_config_schema()
