"""`anabranch dlq`: dead letters, the events that a stage could not process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

from cyclopts import App, Parameter

from anabranch.cli.api_calls import call_api, get, post
from anabranch.cli.names import DEAD_LETTERS, DOCUMENTS, DocumentName, call_by_name, find_id
from anabranch.cli.options import FIRST_PAGE, PageOptions, RemoteOptions
from anabranch.cli.output import choose_display_name, print_fields, print_stderr
from anabranch.cli.rates import Rate
from schemas.errors import NotFound

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient

app = App(
    name="dlq", help="List, show, redrive and discard dead letters.", result_action="return_value"
)
Flag = Parameter(negative="")
DEFAULT = RemoteOptions()


@app.command(name="list")
def list_dead_letters(
    *,
    by_cause: Annotated[bool, Flag] = False,
    stage: str | None = None,
    code: str | None = None,
    search: str | None = None,
    page: PageOptions = FIRST_PAGE,
    common: RemoteOptions = DEFAULT,
) -> int:
    """List open dead letters, the latest first.

    Parameters
    ----------
    by_cause
        Group by stage and error code, with counts.
    stage
        Only dead letters of this stage.
    code
        Only dead letters with this error code.
    search
        Only dead letters with this text in the error or in a name of the document.
    """
    if by_cause:
        causes = get("/v1/dead-letters/causes", common)
        columns = ("events", "stage", "code", "first", "last", "latest_detail")
        return common.show_page(causes, *columns)
    return common.show_page(
        get("/v1/dead-letters", common, stage=stage, code=code, text=search, **page.to_query()),
        *("event_id", "stage", "code", "attempts", "dead_lettered_at"),
        ("document", choose_display_name),
        "detail",
        optional=("attempts", "dead_lettered_at"),
    )


@app.command
def show(event: str, /, *, common: RemoteOptions = DEFAULT) -> int:
    """Show a dead letter: its position in the log, the error and the remedy.

    Parameters
    ----------
    event
        Event id, or its first digits.
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
    stage: str | None = None,
    code: str | None = None,
    everything: Annotated[bool, Parameter(name="--all", negative="")] = False,
    dry_run: Annotated[bool, Flag] = False,
    rate: Rate = None,
    common: RemoteOptions = DEFAULT,
) -> int:
    """Redrive dead letters at their position in the log and wait until done. Exits 5 if some
    failed again.

    Parameters
    ----------
    events
        Event ids, or their first digits.
    stage
        Redrive dead letters of this stage.
    code
        Redrive dead letters with this error code.
    everything
        Redrive all open dead letters.
    dry_run
        Show how many dead letters would be redriven.
    rate
        Maximum events per second: 50, or 50/s.
    """
    selection = _build_selection((), stage, code, everything, dry_run) | {"per_second": rate}

    async def run(client: ApiClient) -> dict[str, Any]:
        event_ids = [await find_id(client, DEAD_LETTERS, event) for event in events] or None
        return await _redrive(client, selection | {"event_ids": event_ids}, common)

    return _print_redrive(call_api(common, run, stages=("all",)), common)


def retry(document: DocumentName, /, *, common: RemoteOptions = DEFAULT) -> int:
    """Redrive the failed events of a document and wait until done. Exits 5 if they failed again."""
    answer = call_by_name(
        DOCUMENTS,
        document,
        common,
        lambda client, document_id: _redrive(client, {"document_id": document_id}, common),
        stages=("all",),
    )
    return _print_redrive(answer, common)


async def _redrive(
    client: ApiClient, selection: dict[str, Any], common: RemoteOptions
) -> dict[str, Any]:
    from anabranch.cli.replay import post_and_wait

    return await post_and_wait(client, "/v1/dead-letters/redrive", selection, common)


def _print_redrive(answer: dict[str, Any], common: RemoteOptions) -> int:
    from anabranch.cli.replay import to_replay_exit_code

    if common.is_json:
        common.print_result(answer)
        return to_replay_exit_code(answer["replays"])
    print(
        f"{answer['events']} events: "
        + ", ".join(f"{name} {count}" for name, count in answer["stages"].items())
    )
    if answer["skipped"]:
        print_stderr(
            f"{answer['skipped']} were skipped: no generation reads their topics",
            quiet=common.quiet,
        )
    for replay in answer["replays"]:
        print(
            f"{replay['stage']}: {replay['replayed']} processed, {replay['superseded']} "
            f"superseded, {replay['dead_lettered']} dead-lettered again"
        )
    return to_replay_exit_code(answer["replays"])


@app.command
def discard(
    *events: UUID,
    reason: str,
    stage: str | None = None,
    code: str | None = None,
    everything: Annotated[bool, Parameter(name="--all", negative="")] = False,
    dry_run: Annotated[bool, Flag] = False,
    common: RemoteOptions = DEFAULT,
) -> int:
    """Close dead letters permanently. Their events stay in the log.

    Parameters
    ----------
    events
        Event ids.
    reason
        Reason, stored with the dead letters.
    stage
        Discard dead letters of this stage.
    code
        Discard dead letters with this error code.
    everything
        Discard all open dead letters.
    dry_run
        Show how many dead letters would be discarded.
    """
    answer = post(
        "/v1/dead-letters/discard",
        _build_selection(events, stage, code, everything, dry_run) | {"reason": reason},
        common,
    )
    outcome = "would be discarded" if dry_run else "discarded"
    return common.show(answer, lambda: print(f"{answer['events']} events {outcome}"))


def _build_selection(
    events: tuple[UUID, ...], stage: str | None, code: str | None, everything: bool, dry_run: bool
) -> dict[str, Any]:
    return {
        "event_ids": [str(event) for event in events] or None,
        "stage": stage,
        "code": code,
        "all": everything,
        "dry_run": dry_run,
    }
