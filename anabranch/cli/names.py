"""Find documents and runs by what a user calls them: id, first digits of it, or a name."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from uuid import UUID

from cyclopts import Parameter

from anabranch.cli.api_calls import call_api
from anabranch.cli.options import QUERY_STAGES, RemoteOptions
from anabranch.cli.output import choose_display_name, to_single_line
from schemas.errors import InvalidRequest, NotFound
from schemas.ids import find_id_range

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient

T = TypeVar("T")
DocumentName = Annotated[
    str,
    Parameter(help="Id, its first digits, external id, title or file name of the document."),
]
WholeDocumentName = Annotated[
    str, Parameter(help="Id, external id, title or file name of the document, in full.")
]
RunId = Annotated[str, Parameter(help="Run id, or its first digits.")]
MAX_CANDIDATES = 10
MAX_COMPARED = 500
"""Latest documents or runs whose names are compared with one that matches none."""


@dataclass(frozen=True)
class NamedResource:
    """A list of the API whose items commands take by name."""

    path: str
    noun: str
    list_command: str
    id_field: str
    filter: str
    """Parameter of the list that finds names and first digits of ids."""
    name_fields: tuple[str, ...]
    get_label: Callable[[Mapping[str, Any]], str | None]


DOCUMENTS = NamedResource(
    *("/v1/documents", "document", "documents list", "document_id", "name"),
    ("external_id", "title", "filename"),
    choose_display_name,
)
RUNS = NamedResource(
    *("/v1/runs", "run", "runs list", "run_id", "id_prefix"),
    (),
    lambda run: str(run.get("query") or ""),
)
DEAD_LETTERS = NamedResource(
    *("/v1/dead-letters", "dead letter", "dlq list", "event_id", "id_prefix"),
    (),
    lambda dead_letter: f"{dead_letter['stage']} {dead_letter['code']}",
)


def call_by_name(
    resource: NamedResource,
    name: str,
    common: RemoteOptions,
    work: Callable[[ApiClient, str], Awaitable[T]],
    *,
    is_exact: bool = False,
    stages: Sequence[str] = QUERY_STAGES,
) -> T:
    """Run `work` with a client and the id of the item, as `call_api` does.

    With `is_exact`, first digits of an id do not count. Raises NotFound, or InvalidRequest if
    several items match.
    """
    return call_api(
        common,
        lambda client: call_with_id(client, resource, name, work, is_exact),
        stages=stages,
    )


def get_by_name(
    resource: NamedResource, name: str, suffix: str, common: RemoteOptions, **parameters: Any
) -> dict[str, Any]:
    """Get the item, or what `suffix` names of it."""
    return call_by_name(
        resource,
        name,
        common,
        lambda client, found_id: client.get(f"{resource.path}/{found_id}{suffix}", **parameters),
    )


async def call_with_id(
    client: ApiClient,
    resource: NamedResource,
    name: str,
    work: Callable[[ApiClient, str], Awaitable[T]],
    is_exact: bool = False,
) -> T:
    item_id = await find_id(client, resource, name, is_exact=is_exact)
    try:
        return await work(client, item_id)
    except NotFound:
        # An external id may have the form of an id.
        same_name = [
            item[resource.id_field]
            for item in (await _fetch_matches(client, resource, name))["items"]
            if _has_name(item, resource, name)
        ]
        if len(same_name) != 1 or same_name[0] == item_id:
            raise
        return await work(client, same_name[0])


async def find_id(
    client: ApiClient, resource: NamedResource, name: str, *, is_exact: bool = False
) -> str:
    """Return a whole id as it is, or the id of the item with this name.

    Raises NotFound or InvalidRequest.
    """
    with suppress(ValueError):
        return str(UUID(name))
    page = await _fetch_matches(client, resource, name)
    by_name = [item for item in page["items"] if _has_name(item, resource, name)]
    # A dead letter is listed once for each stage.
    distinct = {item[resource.id_field]: item for item in by_name or page["items"]}
    candidates = list(distinct.values())
    if len(candidates) == 1 and not page.get("next"):
        if is_exact and not by_name:
            raise InvalidRequest(
                f"{name!r} is only the start of an id.",
                code="NOT_EXACT",
                remedy=f"Give the whole id or name:{_format_candidates(candidates, resource)}",
            )
        return str(candidates[0][resource.id_field])
    if candidates:
        raise InvalidRequest(
            f"{name!r} names several {resource.noun}s.",
            code="AMBIGUOUS_NAME",
            remedy=f"Give the id of one:{_format_candidates(candidates, resource)}",
        )
    near = await _find_near(client, resource, name)
    raise NotFound(
        f"Unknown {resource.noun} {name!r}.",
        remedy=(
            f"Did you mean one of these?{_format_candidates(near, resource)}"
            if near
            else f"List {resource.noun}s with `anabranch {resource.list_command}`."
        ),
    )


def _has_name(item: Mapping[str, Any], resource: NamedResource, name: str) -> bool:
    return name in (item.get(field) for field in resource.name_fields)


async def _fetch_matches(client: ApiClient, resource: NamedResource, name: str) -> dict[str, Any]:
    if not resource.name_fields and find_id_range(name)[0] is None:
        return {"items": [], "next": None}
    return await client.get(resource.path, **{resource.filter: name}, limit=MAX_CANDIDATES)


async def _find_near(
    client: ApiClient, resource: NamedResource, name: str
) -> Sequence[Mapping[str, Any]]:
    """Return items whose name contains the text, or else is similar to it."""
    page = await client.get(resource.path, text=name, limit=MAX_CANDIDATES)
    if page["items"]:
        return list(page["items"])
    page = await client.get(resource.path, limit=MAX_COMPARED)
    items_by_name = {
        str(item[field]).lower(): item
        for item in page["items"]
        for field in resource.name_fields
        if item.get(field)
    }
    names = difflib.get_close_matches(name.lower(), items_by_name)
    near = [items_by_name[similar] for similar in names]
    return list({item[resource.id_field]: item for item in near}.values())


def _format_candidates(items: Sequence[Mapping[str, Any]], resource: NamedResource) -> str:
    return "".join(
        f"\n    {item[resource.id_field]}  {to_single_line(resource.get_label(item) or '-')}"
        for item in items
    )
