"""`anabranch dlq`: dead letters, the events that a stage could not process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from anabranch.cli.api_calls import call_api, get
from anabranch.cli.names import DEAD_LETTERS, DOCUMENTS, DocumentName, call_by_name, find_id
from anabranch.cli.options import (
    FIRST_SORTED_PAGE,
    REMOTE,
    RemoteOptions,
    SortedPageOptions,
    make_group,
)
from anabranch.cli.output import choose_display_name, print_fields
from anabranch.cli.replay import Rate, post_and_wait, to_replay_exit_code
from schemas.errors import NotFound

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient

app = make_group("dlq")
REDRIVE_PATH = "/v1/dead-letters/redrive"


@Parameter(name="*")
@dataclass(frozen=True)
class SelectionOptions:
    """Dead letters to close."""

    stage: str | None = None
    """Only dead letters of this stage."""
    code: str | None = None
    """Only dead letters with this error code."""
    everything: Annotated[bool, Parameter(name="--all")] = False
    """All open dead letters."""
    dry_run: bool = False
    """Only show how many these are."""

    async def to_request(self, client: ApiClient, events: Sequence[str]) -> dict[str, Any]:
        return {
            "event_ids": [await find_id(client, DEAD_LETTERS, event) for event in events] or None,
            "stage": self.stage,
            "code": self.code,
            "all": self.everything,
            "dry_run": self.dry_run,
        }


NO_SELECTION = SelectionOptions()


@app.command(name="list")
def list_dead_letters(
    *,
    by_cause: bool = False,
    stage: str | None = None,
    code: str | None = None,
    search: str | None = None,
    page: SortedPageOptions = FIRST_SORTED_PAGE,
    common: RemoteOptions = REMOTE,
) -> int:
    """List open dead letters, the latest first.

    Args:
        by_cause: Group by stage and error code, with counts.
        stage: Only dead letters of this stage.
        code: Only dead letters with this error code.
        search: Only dead letters with this text in the error or in a name of the document.
    """
    if by_cause:
        causes = get("/v1/dead-letters/causes", common)
        columns = ("events", "stage", "code", "first", "last", "latest_detail")
        return common.show_page(causes, *columns, optional=("first", "last"))
    return common.show_page(
        get("/v1/dead-letters", common, stage=stage, code=code, text=search, **page.to_query()),
        *("event_id", "stage", "code", "attempts", "dead_lettered_at"),
        ("document", choose_display_name),
        "detail",
        optional=("attempts", "dead_lettered_at"),
    )


@app.command
def show(event: str, /, *, common: RemoteOptions = REMOTE) -> int:
    """Show a dead letter: its position in the log, the error and the remedy.

    Args:
        event: Event id, or its first digits.
    """

    async def fetch(client: ApiClient) -> dict[str, Any] | None:
        event_id = await find_id(client, DEAD_LETTERS, event)
        items = (await client.get(DEAD_LETTERS.path, id_prefix=event_id))["items"]
        return items[0] if items else None

    dead_letter = call_api(common, fetch)
    if dead_letter is None:
        raise NotFound(
            f"No open dead letter {event}.",
            remedy="List open dead letters with `anabranch dlq list`.",
        )
    return common.show(dead_letter, lambda: print_fields(dead_letter))


@app.command
def redrive(
    *events: str,
    selection: SelectionOptions = NO_SELECTION,
    rate: Rate = None,
    common: RemoteOptions = REMOTE,
) -> int:
    """Redrive dead letters at their position in the log and wait until done. Exits 5 if some
    failed again.

    Args:
        events: Event ids, or their first digits.
        rate: Maximum events per second: 50, or 50/s.
    """

    async def run(client: ApiClient) -> dict[str, Any]:
        body = await selection.to_request(client, events) | {"per_second": rate}
        return await post_and_wait(client, REDRIVE_PATH, body, common)

    return _print_redrive(call_api(common, run, stages=("all",)), common)


def retry(document: DocumentName, /, *, common: RemoteOptions = REMOTE) -> int:
    """Redrive the failed events of a document and wait until done. Exits 5 if they failed again."""
    answer = call_by_name(
        DOCUMENTS,
        document,
        common,
        lambda client, document_id: post_and_wait(
            client, REDRIVE_PATH, {"document_id": document_id}, common
        ),
        stages=("all",),
    )
    return _print_redrive(answer, common)


def _print_redrive(answer: dict[str, Any], common: RemoteOptions) -> int:
    if common.print_if_json(answer):
        return to_replay_exit_code(answer["replays"])
    print(
        f"{answer['events']} events: "
        + ", ".join(f"{name} {count}" for name, count in answer["stages"].items())
    )
    if answer["skipped"]:
        common.print_note(f"{answer['skipped']} were skipped: no generation reads their topics")
    for replay in answer["replays"]:
        print(
            f"{replay['stage']}: {replay['replayed']} processed, {replay['superseded']} "
            f"superseded, {replay['dead_lettered']} dead-lettered again"
        )
    return to_replay_exit_code(answer["replays"])


@app.command
def discard(
    *events: str,
    reason: str,
    selection: SelectionOptions = NO_SELECTION,
    common: RemoteOptions = REMOTE,
) -> int:
    """Close dead letters permanently. Their events stay in the log.

    Args:
        events: Event ids, or their first digits.
        reason: Reason, stored with the dead letters.
    """

    async def run(client: ApiClient) -> dict[str, Any]:
        body = await selection.to_request(client, events) | {"reason": reason}
        return await client.post("/v1/dead-letters/discard", body)

    answer = call_api(common, run, stages=("all",))
    outcome = "would be discarded" if selection.dry_run else "discarded"
    return common.show(answer, lambda: print(f"{answer['events']} events {outcome}"))
