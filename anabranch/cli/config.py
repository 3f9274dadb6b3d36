"""`anabranch config`, and `anabranch contract`: generate OpenAPI, AsyncAPI and JSON Schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cyclopts import Parameter

from anabranch.cli.api_calls import get, post
from anabranch.cli.options import (
    COMMON,
    LOCAL,
    REMOTE,
    CommonOptions,
    LocalOptions,
    RemoteOptions,
    make_group,
)
from anabranch.cli.output import Column, print_json, print_table

app = make_group("config")


@app.command
def show(*, origin: bool = False, common: LocalOptions = LOCAL) -> int:
    """Show all settings in effect, without secrets.

    Args:
        origin: Show the origin of each setting.
    """
    from anabranch.config.index_config import list_setting_values

    rows = list_setting_values(common.load_settings())
    body = {
        "settings": {row.key: row.value for row in rows},
        **({"origins": {row.key: row.origin for row in rows}} if origin else {}),
    }
    columns = ("key", "value", "origin", "environment") if origin else ("key", "value")
    items = [{column: getattr(row, column) for column in columns} for row in rows]
    return common.show(body, lambda: common.print_items(items, columns, optional=("environment",)))


@app.command
def schema(*, common: RemoteOptions = REMOTE) -> int:
    """Print the JSON Schemas of settings and profiles; with --server, those of the server."""
    if common.server:
        common.print_result(get("/v1/config/schema", common))
        return 0
    from anabranch.config.profiles import build_config_schema

    print_json(build_config_schema())
    return 0


@app.command
def profiles(*, common: RemoteOptions = REMOTE) -> int:
    """List profiles: built-in ones and those of the data folder, or those of --server."""
    if common.server:
        items = get("/v1/profiles", common)["items"]
    else:
        from anabranch.config.profiles import load_all_profiles

        catalog = load_all_profiles(common.load_settings())
        items = [profile.model_dump(mode="json") for profile in catalog.list_profiles()]
    columns: tuple[Column, ...] = (
        *("type", "name"),
        (
            "profiles",
            lambda item: ", ".join(f"{kind}={name}" for kind, name in item["profiles"].items()),
        ),
    )
    return common.show({"profiles": items}, lambda: common.print_items(items, columns))


@app.command
def reload(*, common: RemoteOptions = REMOTE) -> int:
    """Let every API process read its profiles again. If a file is invalid, nothing changes."""
    reloaded = post("/v1/reload-config", {}, common)
    if not common.print_if_json(reloaded):
        if reloaded["changed"]:
            print_table(("changed",), [(name,) for name in reloaded["changed"]])
        else:
            print("No profile changed.")
        print(f"version   {reloaded['sha256']}")
    return 0


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
    from streams.asyncapi import build_asyncapi_document

    return {"asyncapi.json": _format_json(build_asyncapi_document(VERSION, EVENT_CLASSES, TOPICS))}


def build_schema_files() -> dict[str, str]:
    from anabranch.config.profiles import build_config_schema
    from processors import EVENT_CLASSES
    from streams.asyncapi import build_event_schema, get_schema_file_name

    events = {
        f"{EVENTS_DIR}/{get_schema_file_name(event)}": _format_json(build_event_schema(event))
        for event in EVENT_CLASSES
    }
    return {
        **events,
        "settings.schema.json": _format_json(build_config_schema()["settings"]),
        **{
            f"profiles/{name}.schema.json": _format_json(schema)
            for name, schema in build_config_schema()["profiles"].items()
        },
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


contract = make_group("contract")


@Parameter(name="*")
@dataclass(frozen=True)
class TargetOptions:
    """Where the generated files are."""

    check: bool = False
    """Compare with the committed files instead of writing them; exit 1 if one differs."""
    to: Path | None = None
    """Folder to write to. [default: docs/reference]"""


COMMITTED = TargetOptions()


@contract.command
def openapi(*, target: TargetOptions = COMMITTED, common: CommonOptions = COMMON) -> int:
    """Generate the OpenAPI document of the HTTP API."""
    return _write_or_check(build_openapi_files(), target, common)


@contract.command
def asyncapi(*, target: TargetOptions = COMMITTED, common: CommonOptions = COMMON) -> int:
    """Generate the AsyncAPI document of the events on the log."""
    return _write_or_check(build_asyncapi_files(), target, common)


@contract.command
def schemas(*, target: TargetOptions = COMMITTED, common: CommonOptions = COMMON) -> int:
    """Generate JSON Schemas of each event, of the settings and of a profile."""
    return _write_or_check(build_schema_files(), target, common)


def _write_or_check(files: Mapping[str, str], target: TargetOptions, common: CommonOptions) -> int:
    folder, check = target.to or REFERENCE_DIR, target.check
    changed = find_drift(files, folder) if check else write_changed(files, folder)
    if not common.print_if_json(
        {"drifted" if check else "written": changed, "files": sorted(files)}
    ):
        print("\n".join(map(str, changed)) if changed else "nothing changed")
    if check and changed:
        common.print_note(
            "these files differ from the code; run the command without --check to update them"
        )
    return 1 if check and changed else 0
