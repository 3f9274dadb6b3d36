"""`anabranch watch PATH`: declare a folder as a source and print its progress."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.cli.options import RemoteOptions
from anabranch.cli.output import print_json_line, print_stderr

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient

POLL_S = 1.0


async def watch_folder(name: str, body: dict[str, Any], common: RemoteOptions) -> int:
    """Create the source that `body` declares, and print its progress until interrupted."""
    from anabranch.cli.server_connection import open_or_initialize_client
    from anabranch.cli.source import approve_folder

    async with open_or_initialize_client(common) as client:
        approve_folder(body["takes"], common)
        if await _ensure_source(client, body):
            print_stderr(
                f"watching {body['takes']['path']} as source {name}; to stop permanently: anabranch source remove {name}",
                quiet=common.quiet,
            )
        await _follow(client, name, common)
    return 0


async def _ensure_source(client: ApiClient, body: dict[str, Any]) -> bool:
    """Create the source unless the folder is watched already. Returns whether it was created."""
    existing = {source["name"]: source for source in (await client.get("/v1/sources"))["items"]}
    if (
        body["name"] in existing
        and existing[body["name"]]["takes"][
            "path" if existing[body["name"]]["kind"] == "folder" else "kind"
        ]
        == body["takes"]["path"]
    ):
        return False
    await client.post("/v1/sources", body)
    return True


async def _follow(client: ApiClient, name: str, common: RemoteOptions) -> None:
    """Print a line whenever the source's status changes."""
    last_line: dict[str, Any] = {}
    while True:
        sources = {source["name"]: source for source in (await client.get("/v1/sources"))["items"]}
        if entry := sources.get(name):
            line = {
                "state": entry["state"],
                "documents": entry["documents"],
                "files": entry["status"].get("items"),
                "status": entry["status"],
            }
            if line != last_line:
                _print_status(line, common)
                last_line = line
        await asyncio.sleep(POLL_S)


def _print_status(line: dict[str, Any], common: RemoteOptions) -> None:
    if common.is_json:
        print_json_line(line)
        return
    print(
        f"{line['state']}: {line['documents']} documents of {line['files'] if line['files'] is not None else '?'} files",
        flush=True,
    )
    if line["state"] == "failed":
        print_stderr(
            f"{line['status']['detail']} [{line['status']['code']}]\n  → {line['status']['remedy']}"
        )
    for file, problem in line["status"].get("problems", {}).items():
        print_stderr(f"{file}: {problem}")


def to_source_name(folder: Path) -> str:
    name = re.sub(r"[^a-z0-9_-]+", "-", folder.name.lower()).strip("-")[:34]
    return f"watch-{name}" if name else "watch"
