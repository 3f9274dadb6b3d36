"""`anabranch watch PATH`: a folder as a source, followed for as long as somebody looks."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.cli.options import Remote
from anabranch.cli.output import print_line, say

if TYPE_CHECKING:
    from anabranch.client import ApiClient

LOOK_S = 1.0


async def watch_folder(name: str, body: dict[str, Any], common: Remote) -> int:
    """`body` declares the source. Until interrupted."""
    from anabranch.cli.serving import beginning_client
    from anabranch.cli.source import approve_folder

    async with beginning_client(common) as client:
        approve_folder(body["takes"], common)
        if await _declare(client, body):
            say(f"watching {body['takes']['path']} as source {name}; to end that for good: anabranch source remove {name}", quiet=common.quiet)
        await _follow(client, name, common)
    return 0


async def _declare(client: ApiClient, body: dict[str, Any]) -> bool:
    """Whether it was not yet watched."""
    known = {source["name"]: source for source in (await client.get("/v1/sources"))["items"]}
    if body["name"] in known and known[body["name"]]["takes"]["path" if known[body["name"]]["kind"] == "folder" else "kind"] == body["takes"]["path"]:
        return False
    await client.post("/v1/sources", body)
    return True


async def _follow(client: ApiClient, name: str, common: Remote) -> None:
    """A line whenever something changed."""
    shown: dict[str, Any] = {}
    while True:
        sources = {source["name"]: source for source in (await client.get("/v1/sources"))["items"]}
        if found := sources.get(name):
            line = {"state": found["state"], "documents": found["documents"], "files": found["status"].get("items"), "status": found["status"]}
            if line != shown:
                _show(line, common)
                shown = line
        await asyncio.sleep(LOOK_S)


def _show(line: dict[str, Any], common: Remote) -> None:
    if common.json:
        print_line(line)
        return
    print(f"{line['state']}: {line['documents']} documents of {line['files'] if line['files'] is not None else '?'} files", flush=True)
    if line["state"] == "failed":
        say(f"{line['status']['detail']} [{line['status']['code']}]\n  → {line['status']['remedy']}")
    for file, problem in line["status"].get("problems", {}).items():
        say(f"{file}: {problem}")


def source_name(folder: Path) -> str:
    """A source's name may hold less than a folder's."""
    name = re.sub(r"[^a-z0-9_-]+", "-", folder.name.lower()).strip("-")[:34]
    return f"watch-{name}" if name else "watch"
