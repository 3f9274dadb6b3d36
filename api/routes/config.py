"""What can be set."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from api.access import Use

router = APIRouter(tags=["config"])


@router.get("/config/schema", operation_id="get_config_schema")
async def schema(use: Use) -> dict[str, Any]:
    """JSON Schemas of the settings and of a profile."""
    return use.config_schema()
