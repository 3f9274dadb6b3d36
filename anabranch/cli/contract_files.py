"""Generated contract files: OpenAPI, AsyncAPI, and JSON Schemas of events, settings and profiles."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anabranch.config.schema import build_config_schema
from streams.asyncapi import build_asyncapi_document, build_event_schema, get_schema_file_name

REFERENCE_DIR = Path("docs/reference")
EVENTS_DIR = "events"


def build_openapi_files() -> dict[str, str]:
    from api.app import VERSION, create_routes

    return {
        "openapi.json": _format_json(
            create_routes().openapi() | {"info": {"title": "Anabranch", "version": VERSION}}
        )
    }


def build_asyncapi_files() -> dict[str, str]:
    from api.app import VERSION
    from processors import EVENT_CLASSES, TOPICS

    return {"asyncapi.json": _format_json(build_asyncapi_document(VERSION, EVENT_CLASSES, TOPICS))}


def build_schema_files() -> dict[str, str]:
    from processors import EVENT_CLASSES

    events = {
        f"{EVENTS_DIR}/{get_schema_file_name(event)}": _format_json(build_event_schema(event))
        for event in EVENT_CLASSES
    }
    return {
        **events,
        "settings.schema.json": _format_json(build_config_schema()["settings"]),
        "profile.schema.json": _format_json(build_config_schema()["profile"]),
    }


def write_changed(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Write the files that differ, and return their paths."""
    changed = find_drift(files, folder)
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[str(path.relative_to(folder))], encoding="utf-8")
    return changed


def find_drift(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Return the paths of files that are missing or differ."""
    return [
        folder / name
        for name, text in files.items()
        if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != text
    ]


def _format_json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
