"""`anabranch collections`."""

from __future__ import annotations

import asyncio
from typing import Any, Literal
from urllib.parse import quote

from anabranch.cli.api_calls import call_api, get
from anabranch.cli.options import REMOTE, CollectionName, RemoteOptions, Yes, make_group
from anabranch.cli.output import CONTINUES_WHILE_RUNNING, confirm, resume_hint
from schemas.errors import InvalidRequest

app = make_group("collections")
POLL_S = 0.3


@app.command(name="list")
def list_collections(*, common: RemoteOptions = REMOTE) -> int:
    """List collections with their searchable documents and default profiles."""
    return common.show_page(
        get("/v1/collections", common),
        ("collection", "name"),
        *("documents", "chunks", "languages", "default_profile", "chunking"),
        ("deletion", lambda item: (item["deletion"] or {}).get("state")),
        optional=("chunking", "languages", "deletion", "chunks"),
    )


@app.command(name="set-profile")
def set_profile(name: str, profile: str, /, *, common: RemoteOptions = REMOTE) -> int:
    """Set the default profile of a collection. Questions use it that name the collection and no
    profile.

    Args:
        name: Collection name. The collection need not have documents yet.
        profile: Workflow profile, as `anabranch config profiles` lists it.
    """
    return _configure(name, {"default_profile": profile}, common)


@app.command(name="unset-profile")
def unset_profile(name: CollectionName, /, *, common: RemoteOptions = REMOTE) -> int:
    """Unset the default profile of a collection."""
    return _configure(name, {"default_profile": None}, common)


@app.command
def delete(name: CollectionName, /, *, yes: Yes = False, common: RemoteOptions = REMOTE) -> int:
    """Delete all documents of a collection, and its default profile. Their events stay in the log;
    `anabranch erase collection` erases them too.
    """
    confirm(f"Delete all documents of collection {name}?", yes=yes)
    deletion = asyncio.run(_delete_and_wait(name, common))
    return common.show(deletion, lambda: print(f"deleted collection {name}"))


@app.command
def configure(
    name: CollectionName,
    /,
    *,
    chunking: str | None = None,
    types: str | None = None,
    relations: str = "",
    properties: str = "",
    unset: tuple[Literal["chunking", "extract"], ...] = (),
    common: RemoteOptions = REMOTE,
) -> int:
    """Set how documents of a collection are split, and what is extracted from them. It holds for
    documents that are sent from now on; send others again with `anabranch ingest --force`.

    Args:
        chunking: Chunking profile, as `anabranch config profiles` lists it.
        types: Types of entities to extract, comma-separated.
        relations: Types of relations to extract, comma-separated; any by default.
        properties: Names of claims to extract, comma-separated; any by default.
        unset: Process documents as those of other collections in this respect. Repeatable.
    """
    changes: dict[str, Any] = dict.fromkeys(unset)
    if chunking is not None:
        changes["chunking"] = chunking
    if types is not None:
        names = {"entities": types, "relations": relations, "properties": properties}
        changes["extract"] = {
            field: [part.strip() for part in text.split(",") if part.strip()]
            for field, text in names.items()
        }
    elif relations or properties:
        raise InvalidRequest(
            "--relations and --properties need --types.", remedy="Name the types of entities too."
        )
    if not changes:
        raise InvalidRequest("Nothing to configure.", remedy="Give --chunking, --types or --unset.")
    return _configure(name, changes, common)


def _configure(name: str, changes: dict[str, Any], common: RemoteOptions) -> int:
    collection = call_api(
        common, lambda client: client.call("PUT", _build_path(name), changes), stages=("control",)
    )
    types = ", ".join((collection["extract"] or {}).get("entities", ()))
    text = (
        f"{name}: default profile {collection['default_profile'] or 'unset'}, "
        f"chunking {collection['chunking'] or 'unset'}, types {types or 'unset'}"
    )
    status = common.show(collection, lambda: print(text))
    if "chunking" in changes or "extract" in changes:
        common.print_note(
            "This holds for documents that are sent from now on; send others again with --force."
        )
    return status


async def _delete_and_wait(name: str, common: RemoteOptions) -> dict[str, Any]:
    from anabranch.cli.server_connection import open_client

    async with open_client(common, stages=("all",)) as client:
        accepted = await client.call("DELETE", _build_path(name))
        with resume_hint(
            f"the deletion {CONTINUES_WHILE_RUNNING}; show its state: anabranch collections list"
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
