"""Generated contracts, as files: OpenAPI, AsyncAPI, JSON Schemas of the events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anabranch.settings_schema import config_schema
from streams.asyncapi import asyncapi_document, event_schema, schema_file

REFERENCE = Path("docs/reference")
EVENTS = "events"


def openapi_files() -> dict[str, str]:
    from api.app import VERSION, routes_only

    return {"openapi.json": _text(routes_only().openapi() | {"info": {"title": "Anabranch", "version": VERSION}})}


def asyncapi_files() -> dict[str, str]:
    from api.app import VERSION

    return {"asyncapi.json": _text(asyncapi_document(VERSION))}


def schema_files() -> dict[str, str]:
    from schemas.events import declared

    events = {f"{EVENTS}/{schema_file(event)}": _text(event_schema(event)) for event in declared()}
    return {**events, "settings.schema.json": _text(config_schema()["settings"]), "profile.schema.json": _text(config_schema()["profile"])}


def write(files: Mapping[str, str], folder: Path) -> list[Path]:
    """What changed."""
    changed = drift(files, folder)
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[str(path.relative_to(folder))], encoding="utf-8")
    return changed


def drift(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Files that are missing or hold something else."""
    return [folder / name for name, text in files.items() if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != text]


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
