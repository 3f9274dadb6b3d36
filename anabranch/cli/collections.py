"""`anabranch collections`."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

from cyclopts import App, Parameter

from anabranch.cli.api_calls import call_api, get
from anabranch.cli.errors import FAILED
from anabranch.cli.options import CollectionName, RemoteOptions, Yes
from anabranch.cli.output import CONTINUES_WHILE_RUNNING, confirm, print_stderr, resume_hint

app = App(
    name="collections",
    help="List collections, set their default profiles, delete them.",
    result_action="return_value",
)
Flag = Parameter(negative="")
DEFAULT = RemoteOptions()
POLL_S = 0.3


@app.command(name="list")
def list_collections(*, common: RemoteOptions = DEFAULT) -> int:
    """List collections with their searchable documents and default profiles."""
    return common.show_page(
        get("/v1/collections", common),
        ("collection", "name"),
        *("documents", "chunks", "languages", "default_profile"),
        ("deletion", lambda item: (item["deletion"] or {}).get("state")),
    )


@app.command(name="set-profile")
def set_profile(name: str, profile: str, /, *, common: RemoteOptions = DEFAULT) -> int:
    """Set the default profile of a collection. Questions use it that name the collection and no
    profile.

    Parameters
    ----------
    name
        Collection name. The collection need not have documents yet.
    profile
        Workflow profile, as `anabranch config profiles` lists it.
    """
    return _configure(name, profile, common)


@app.command(name="unset-profile")
def unset_profile(name: CollectionName, /, *, common: RemoteOptions = DEFAULT) -> int:
    """Unset the default profile of a collection."""
    return _configure(name, None, common)


@app.command
def delete(name: CollectionName, /, *, yes: Yes = False, common: RemoteOptions = DEFAULT) -> int:
    """Delete all documents of a collection, and its default profile. Their events stay in the log;
    `anabranch erase collection` erases them too.
    """
    if not yes and not confirm(f"Delete all documents of collection {name}?"):
        print_stderr("nothing was deleted")
        return FAILED
    deletion = asyncio.run(_delete_and_wait(name, common))
    return common.show(deletion, lambda: print(f"deleted collection {name}"))


def _configure(name: str, profile: str | None, common: RemoteOptions) -> int:
    collection = call_api(
        common,
        lambda client: client.put(_build_path(name), {"default_profile": profile}),
        stages=("control",),
    )
    text = f"{name}: default profile {collection['default_profile'] or 'unset'}"
    return common.show(collection, lambda: print(text))


async def _delete_and_wait(name: str, common: RemoteOptions) -> dict[str, Any]:
    from anabranch.cli.server_connection import open_client

    async with open_client(common, stages=("all",)) as client:
        accepted = await client.delete(_build_path(name))
        with resume_hint(
            lambda: (
                f"the deletion {CONTINUES_WHILE_RUNNING}; show its state: anabranch collections "
                "list"
            )
        ):
            while True:
                collection = await client.get(_build_path(name))
                deletion = collection["deletion"]
                # A later request of someone else is another deletion, and includes this one.
                if deletion["state"] == "done":
                    return accepted | {"state": "done", "completed_at": deletion["completed_at"]}
                await asyncio.sleep(POLL_S)


def _build_path(name: str) -> str:
    return f"/v1/collections/{quote(name, safe='')}"
