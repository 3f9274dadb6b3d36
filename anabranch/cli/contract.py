"""`anabranch contract`: generate OpenAPI, AsyncAPI and JSON Schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from anabranch.cli.options import CommonOptions
from anabranch.cli.output import print_stderr
from anabranch.config.profiles import build_config_schema
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


app = App(
    name="contract",
    help="Generate OpenAPI, AsyncAPI and JSON Schemas.",
    result_action="return_value",
)
Flag = Parameter(negative="")
DEFAULT = CommonOptions()


@app.command
def openapi(
    *, check: Annotated[bool, Flag] = False, to: Path | None = None, common: CommonOptions = DEFAULT
) -> int:
    """Generate the OpenAPI document of the HTTP API.

    Parameters
    ----------
    check
        Compare with the committed file instead of writing it; exit 1 if it differs.
    to
        Folder to write to. [default: docs/reference]
    """

    return _write_or_check(build_openapi_files(), check, to, common)


@app.command
def asyncapi(
    *, check: Annotated[bool, Flag] = False, to: Path | None = None, common: CommonOptions = DEFAULT
) -> int:
    """Generate the AsyncAPI document of the events on the log.

    Parameters
    ----------
    check
        Compare with the committed file instead of writing it; exit 1 if it differs.
    to
        Folder to write to. [default: docs/reference]
    """

    return _write_or_check(build_asyncapi_files(), check, to, common)


@app.command
def schemas(
    *, check: Annotated[bool, Flag] = False, to: Path | None = None, common: CommonOptions = DEFAULT
) -> int:
    """Generate JSON Schemas of each event, of the settings and of a profile.

    Parameters
    ----------
    check
        Compare with the committed files instead of writing them; exit 1 if one differs.
    to
        Folder to write to. [default: docs/reference]
    """

    return _write_or_check(build_schema_files(), check, to, common)


def _write_or_check(
    files: Mapping[str, str], check: bool, to: Path | None, common: CommonOptions
) -> int:

    folder = to or REFERENCE_DIR
    changed = find_drift(files, folder) if check else write_changed(files, folder)
    if common.is_json:
        common.print_result({"drifted" if check else "written": changed, "files": sorted(files)})
    else:
        print("\n".join(map(str, changed)) if changed else "nothing changed")
    if check and changed:
        print_stderr(
            "these files differ from the code; run the command without --check to update them",
            quiet=common.quiet,
        )
    return 1 if check and changed else 0
