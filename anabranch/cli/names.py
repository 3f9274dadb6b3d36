"""Find what a user names by its id, first digits of it, or a name: documents, runs and others."""

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
    str, Parameter(help="Id, its first digits, external id, title or file name of the document.")
]
WholeDocumentName = Annotated[
    str, Parameter(help="Id, external id, title or file name of the document, in full.")
]
RunId = Annotated[str, Parameter(help="Run id, or its first digits.")]
QuestionName = Annotated[
    str, Parameter(help="Id of the saved question, its first digits, or its text.")
]
ExperimentId = Annotated[str, Parameter(help="Experiment id, or its first digits.")]
WholeFactName = Annotated[str, Parameter(help="Fact id in full, or its text.")]
FactName = Annotated[str, Parameter(help="Fact id, its first digits, or its text.")]
ReplayId = Annotated[str, Parameter(help="Replay id, or its first digits.")]
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
    filter: str | None
    """Parameter of the list that finds names and first digits of ids. Without it, the list is read
    whole, and the label is the name.
    """
    name_fields: tuple[str, ...]
    get_label: Callable[[Mapping[str, Any]], str | None]

    def list_names(self, item: Mapping[str, Any]) -> list[str]:
        if self.filter is None:
            return [str(self.get_label(item))]
        return [str(item[name]) for name in self.name_fields if item.get(name)]


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
QUESTIONS = NamedResource(
    *("/v1/questions", "saved question", "questions list", "question_id", None, ()),
    lambda question: str(question["request"]["query"]),
)
EXPERIMENTS = NamedResource(
    *("/v1/experiments", "experiment", "experiments list", "experiment_id", None, ()),
    lambda experiment: f"{experiment['control']} {experiment['candidate']}",
)
FACTS = NamedResource(
    *("/v1/facts", "fact", "facts list", "fact_id", None, ()),
    lambda fact: f"{fact['subject']} {fact['predicate']} {fact['object']}",
)
REPLAYS = NamedResource(
    *("/v1/replays", "replay", "replay list", "replay_id", None, ()),
    lambda replay: f"{replay['kind']} {replay['stage']}",
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
        common, lambda client: call_with_id(client, resource, name, work, is_exact), stages=stages
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


def post_by_name(
    resource: NamedResource,
    name: str,
    action: str,
    body: dict[str, Any],
    common: RemoteOptions,
    *,
    stages: Sequence[str] = QUERY_STAGES,
) -> dict[str, Any]:
    """Post to an action of the item, such as `/stop`."""

    async def send(client: ApiClient, found_id: str) -> dict[str, Any]:
        return await client.post(f"{resource.path}/{found_id}{action}", body)

    return call_by_name(resource, name, common, send, stages=stages)


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
            if name in resource.list_names(item)
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
    by_name = [item for item in page["items"] if name in resource.list_names(item)]
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
            else f"`anabranch {resource.list_command}` prints ids, of which the first digits are "
            "enough, at least 4."
        ),
    )


async def _fetch_matches(client: ApiClient, resource: NamedResource, name: str) -> dict[str, Any]:
    first, last = find_id_range(name)
    if resource.filter is None:
        items = [
            item
            for item in await _read_list(client, resource)
            if name in resource.list_names(item)
            or (first and last and first <= UUID(item[resource.id_field]) <= last)
        ]
        return {"items": items, "next": None}
    if not resource.name_fields and first is None:
        return {"items": [], "next": None}
    return await client.get(resource.path, **{resource.filter: name}, limit=MAX_CANDIDATES)


async def _read_list(client: ApiClient, resource: NamedResource) -> list[dict[str, Any]]:
    page = await client.get(resource.path)
    items = list(page["items"])
    while page.get("next"):
        page = await client.get(resource.path, after=page["next"], limit=MAX_COMPARED)
        items += page["items"]
    return items


async def _find_near(
    client: ApiClient, resource: NamedResource, name: str
) -> Sequence[Mapping[str, Any]]:
    """Return items whose name contains the text, or else is similar to it."""
    if resource.filter is None:
        items = await _read_list(client, resource)
        found = [item for item in items if name.lower() in resource.list_names(item)[0].lower()]
    else:
        found = (await client.get(resource.path, text=name, limit=MAX_CANDIDATES))["items"]
    if found:
        return found[:MAX_CANDIDATES]
    if resource.filter is not None:
        items = (await client.get(resource.path, limit=MAX_COMPARED))["items"]
    items_by_name = {
        item_name.lower(): item for item in items for item_name in resource.list_names(item)
    }
    names = difflib.get_close_matches(name.lower(), items_by_name)
    near = [items_by_name[similar] for similar in names]
    return list({item[resource.id_field]: item for item in near}.values())


def _format_candidates(items: Sequence[Mapping[str, Any]], resource: NamedResource) -> str:
    return "".join(
        f"\n    {item[resource.id_field]}  {to_single_line(resource.get_label(item) or '-')}"
        for item in items
    )
