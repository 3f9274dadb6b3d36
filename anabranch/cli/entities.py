"""`anabranch entities`."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from cyclopts import Parameter

from anabranch.cli.api_calls import call_api, get, post
from anabranch.cli.options import (
    FIRST_SORTED_PAGE,
    REMOTE,
    RemoteOptions,
    SortedPageOptions,
    make_group,
)
from anabranch.cli.output import print_fields

app = make_group("entities")
EntityName = Annotated[str, Parameter(help="Name, alias or id of the entity.")]


@app.command(name="list")
def list_entities(
    *,
    search: str | None = None,
    kind: Annotated[str | None, Parameter(name="--type")] = None,
    page: SortedPageOptions = FIRST_SORTED_PAGE,
    common: RemoteOptions = REMOTE,
) -> int:
    """List entities, most mentioned first.

    Args:
        search: Only entities with this text in a name or alias.
        kind: Only entities of this type, such as PERSON or ORG.
    """
    return common.show_page(
        get("/v1/entities", common, text=search, type=kind, **page.to_query()),
        *("id", "type", "mentions", "name"),
        ("added aliases", lambda item: ", ".join(item["added_aliases"])),
        optional=("added aliases",),
    )


@app.command
def show(
    entity: EntityName,
    /,
    *,
    kind: Annotated[str | None, Parameter(name="--type")] = None,
    common: RemoteOptions = REMOTE,
) -> int:
    """Show an entity with its names, parts, relations and claims.

    Args:
        kind: Its type, if several have the name.
    """
    details = get(_format_path(entity), common, type=kind)
    return common.show(details, lambda: _print_details(details, common))


@app.command
def amend(
    entity: EntityName,
    /,
    *,
    add_alias: tuple[str, ...] = (),
    remove_alias: tuple[str, ...] = (),
    set_type: str | None = None,
    kind: Annotated[str | None, Parameter(name="--type")] = None,
    common: RemoteOptions = REMOTE,
) -> int:
    """Add or remove aliases, by which questions name an entity, or correct its type.

    Args:
        add_alias: Name to add. Repeatable.
        remove_alias: Added or found alias to remove. Repeatable.
        set_type: New type, such as ORG. The type that documents state undoes a correction.
        kind: Its type, if several have the name.
    """
    body: dict[str, Any] = {"add_aliases": list(add_alias), "remove_aliases": list(remove_alias)}
    if set_type:
        body["type"] = set_type
    changed = call_api(
        common,
        lambda client: client.call("PATCH", _format_path(entity), body, type=kind),
        stages=("control",),
    )
    return _show_change(changed, common)


@app.command
def merge(
    entity: EntityName,
    /,
    *,
    into: str,
    kind: Annotated[str | None, Parameter(name="--type")] = None,
    into_type: str | None = None,
    common: RemoteOptions = REMOTE,
) -> int:
    """Make an entity part of another one, with its mentions, relations and aliases.

    Args:
        into: Name, alias or id of the other one, which gives its name and its type.
        kind: Type of the entity, if several have the name.
        into_type: Type of the other one, if several have the name.
    """
    whole = get(_format_path(into), common, type=into_type)
    return _post(entity, kind, "/merge", {"into": whole["id"]}, common)


@app.command
def split(
    entity: EntityName,
    /,
    *,
    part: str,
    kind: Annotated[str | None, Parameter(name="--type")] = None,
    common: RemoteOptions = REMOTE,
) -> int:
    """Make a part of an entity one of its own again.

    Args:
        part: Name or id of the entity that was merged into it.
        kind: Type of the entity, if several have the name.
    """
    return _post(entity, kind, "/split", {"part": part}, common)


def _format_path(entity: str) -> str:
    return f"/v1/entities/{quote(entity, safe='')}"


def _post(
    entity: str, kind: str | None, action: str, body: dict[str, Any], common: RemoteOptions
) -> int:
    path = _format_path(entity) + action
    return _show_change(post(path, body, common, stages=("control",), type=kind), common)


def _show_change(details: dict[str, Any], common: RemoteOptions) -> int:
    def print_text() -> None:
        _print_names(details)
        print_fields({"status": details["status"]})

    return common.show(details, print_text)


def _print_details(details: dict[str, Any], common: RemoteOptions) -> None:
    _print_names(details)
    parts = [(part["id"], part["type"], part["name"]) for part in details["parts"]]
    relations = [(edge["subject"], edge["type"], edge["object"]) for edge in details["relations"]]
    claims = [(claim["property"], claim["value"]) for claim in details["claims"]]
    found_aliases = [
        (found["alias"], found["kind"], found["document_id"]) for found in details["found_aliases"]
    ]
    for headings, rows in (
        # An entity into which no other was merged consists of itself.
        (("part", "stated type", "name"), parts if len(parts) > 1 else []),
        (("found alias", "kind", "document"), found_aliases),
        (("subject", "relation", "object"), relations),
        (("claim", "value"), claims),
    ):
        if rows:
            print()
            common.print_table(headings, rows)


def _print_names(details: dict[str, Any]) -> None:
    names = ("id", "type", "name", "aliases", "added_aliases", "mentions")
    fields = {name: details[name] for name in names}
    print_fields(
        {
            name: ", ".join(value) or None if isinstance(value, list) else value
            for name, value in fields.items()
        }
    )
