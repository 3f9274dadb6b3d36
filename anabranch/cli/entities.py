"""`anabranch entities`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any
from urllib.parse import quote

from cyclopts import App, Parameter
from cyclopts.validators import Number

from anabranch.cli.api_calls import get
from anabranch.cli.options import RemoteOptions
from anabranch.cli.output import print_fields, print_next_page, print_table

app = App(
    name="entities",
    help="List and show entities, and change their aliases.",
    result_action="return_value",
)
DEFAULT = RemoteOptions()


@app.command(name="list")
def list_entities(
    *,
    text: str | None = None,
    kind: Annotated[str | None, Parameter(name="--type")] = None,
    limit: Annotated[int, Parameter(validator=Number(gte=1))] = 50,
    after: str | None = None,
    common: RemoteOptions = DEFAULT,
) -> int:
    """List entities, most mentioned first.

    Parameters
    ----------
    text
        Only entities with this text in a name or alias.
    kind
        Only entities of this type, such as PERSON or ORG.
    limit
        Maximum number of entities.
    after
        Cursor printed with the previous page.
    """
    page = get("/v1/entities", common, text=text, type=kind, limit=limit, after=after)
    if common.is_json:
        common.print_result(page)
        return 0
    print_table(
        ("id", "type", "mentions", "name", "added aliases"),
        [
            (
                item["id"],
                item["type"],
                item["mentions"],
                item["name"],
                ", ".join(item["added_aliases"]),
            )
            for item in page["items"]
        ],
    )
    print_next_page(page["next"], quiet=common.quiet)
    return 0


@app.command
def show(
    entity: str,
    /,
    *,
    kind: Annotated[str | None, Parameter(name="--type")] = None,
    common: RemoteOptions = DEFAULT,
) -> int:
    """Show an entity with its names, relations and claims.

    Parameters
    ----------
    entity
        Name, alias or id of the entity.
    kind
        Its type, if several have the name.
    """
    details = get(f"/v1/entities/{quote(entity, safe='')}", common, type=kind)
    if common.is_json:
        common.print_result(details)
        return 0
    _print_names(details)
    relations = [(edge["subject"], edge["type"], edge["object"]) for edge in details["relations"]]
    claims = [(claim["property"], claim["value"]) for claim in details["claims"]]
    found_aliases = [
        (found["alias"], found["kind"], found["document_id"]) for found in details["found_aliases"]
    ]
    for headings, rows in (
        (("found alias", "kind", "document"), found_aliases),
        (("subject", "relation", "object"), relations),
        (("claim", "value"), claims),
    ):
        if rows:
            print()
            print_table(headings, rows)
    return 0


@app.command
def amend(
    entity: str,
    /,
    *,
    add_alias: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    remove_alias: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    kind: Annotated[str | None, Parameter(name="--type")] = None,
    common: RemoteOptions = DEFAULT,
) -> int:
    """Add or remove aliases, by which questions name an entity.

    Parameters
    ----------
    entity
        Name, alias or id of the entity.
    add_alias
        Name to add. Repeatable.
    remove_alias
        Added or found alias to remove. Repeatable.
    kind
        Its type, if several have the name.
    """
    from anabranch.cli.server_connection import open_client

    async def send_amendment() -> dict[str, Any]:
        async with open_client(common, stages=("control",)) as client:
            return await client.patch(
                f"/v1/entities/{quote(entity, safe='')}{f'?type={quote(kind)}' if kind else ''}",
                {"add_aliases": list(add_alias), "remove_aliases": list(remove_alias)},
            )

    details = asyncio.run(send_amendment())
    if common.is_json:
        common.print_result(details)
    else:
        _print_names(details)
        print_fields({"status": details["status"]})
    return 0


def _print_names(details: dict[str, Any]) -> None:
    names = ("id", "type", "name", "aliases", "added_aliases", "mentions")
    fields = {name: details[name] for name in names}
    print_fields(
        {
            name: ", ".join(value) or None if isinstance(value, list) else value
            for name, value in fields.items()
        }
    )
