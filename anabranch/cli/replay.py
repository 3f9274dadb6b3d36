"""`anabranch replay`: reprocess events that a stage has already read."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, Token
from cyclopts.validators import Number

from anabranch.cli.api_calls import call_api, format_time, get
from anabranch.cli.errors import FAILED, OK, PARTIAL_FAILURE
from anabranch.cli.names import (
    DOCUMENTS,
    REPLAYS,
    ReplayId,
    call_by_name,
    find_id,
    get_by_name,
    post_by_name,
)
from anabranch.cli.options import REMOTE, RemoteOptions, make_group
from anabranch.cli.output import CONTINUES_WHILE_RUNNING, print_fields, resume_hint
from schemas.errors import InvalidRequest
from schemas.replay_requests import MAX_EVENTS_PER_S, MIN_EVENTS_PER_S

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient

app = make_group("replay")
POLL_S = 0.5


def _parse_rate(_: object, tokens: Sequence[Token]) -> float:
    return float(tokens[0].value.removesuffix("/s"))


Rate = Annotated[
    float | None,
    Parameter(converter=_parse_rate, validator=Number(gte=MIN_EVENTS_PER_S, lte=MAX_EVENTS_PER_S)),
]


@app.command
def start(
    *,
    stage: Annotated[str, Parameter(name=["--stage", "--from"])],
    generation: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    offsets: tuple[str, ...] = (),
    document: tuple[str, ...] = (),
    collection: str | None = None,
    rate: Rate = None,
    dry_run: bool = False,
    wait: Annotated[bool, Parameter(negative="--no-wait")] = True,
    common: RemoteOptions = REMOTE,
) -> int:
    """Replay a stage's topic. Engine results are cached, and an old event never overwrites
    newer data.

    Exits 5 if events were dead-lettered, 1 if the replay failed or was cancelled.

    Args:
        stage: Stage that reprocesses the events.
        generation: Generation to replay in. [default: the live one]
        since: Only events appended at or after this time (UTC unless it has a zone).
        until: Only events appended before this time (UTC unless it has a zone).
        offsets: Only this range: PARTITION:FROM-TO, without TO itself; FROM or TO may be omitted.
            Repeatable.
        document: Only events of the document with this id, first digits of it, external id, title
            or file name. Repeatable.
        collection: Only events of documents in this collection.
        rate: Maximum events per second: 50, or 50/s.
        dry_run: Show which events would be replayed, without replaying them.
        wait: Wait until the replay ends.
    """
    body: dict[str, Any] = {
        "stage": stage,
        "generation": generation,
        "since": format_time(since),
        "until": format_time(until),
        "collection": collection,
        "offsets": [_parse_offsets(text) for text in offsets],
        "per_second": rate,
        "dry_run": dry_run,
    }

    async def send(client: ApiClient) -> dict[str, Any]:
        ids = [await find_id(client, DOCUMENTS, name) for name in document]
        request = body | {"document_ids": ids or None}
        if wait:
            return await post_and_wait(client, "/v1/replays", request, common)
        return await client.post("/v1/replays", request)

    answer = call_api(common, send, stages=("all",))
    if not common.print_if_json(answer):
        _print_start(answer, is_dry_run=dry_run)
    return to_replay_exit_code(answer.get("replays", []))


def _print_start(answer: Mapping[str, Any], *, is_dry_run: bool) -> None:
    print(
        f"{answer['stage']} reads {answer['events_read']} events of {answer['topic']}"
        + (f" for {answer['events_chosen']} of them" if is_dry_run else "")
    )
    for gap in answer["missing"]:
        print(
            f"expired: offsets {gap['start']} to {gap['end'] - 1} of partition {gap['partition']}"
        )
    for replay in answer.get("replays", []):
        print(
            f"{replay['state']}: {replay['replayed']} replayed, {replay['superseded']} "
            f"superseded, {replay['dead_lettered']} dead-lettered"
        )


@app.command(name="list")
def list_replays(*, common: RemoteOptions = REMOTE) -> int:
    """List replays and redrives, the newest first."""
    return common.show_page(
        get("/v1/replays", common),
        *("replay_id", "kind", "stage", "state", "read", "total"),
        *("replayed", "superseded", "dead_lettered"),
        optional=("superseded", "kind", "total", "read", "replayed"),
    )


@app.command
def show(replay: ReplayId, /, *, common: RemoteOptions = REMOTE) -> int:
    """Show the progress, the rate and the remaining time of a replay."""
    return _print_replay(get_by_name(REPLAYS, replay, "", common), common)


@app.command
def status(replay: ReplayId, /, *, common: RemoteOptions = REMOTE) -> int:
    """Show a replay: an alias of `show`."""
    return show(replay, common=common)


@app.command
def watch(replay: ReplayId, /, *, common: RemoteOptions = REMOTE) -> int:
    """Follow a replay until it ends or is paused. Exits as `start` does, and 1 if it is paused."""
    snapshot = call_by_name(
        REPLAYS,
        replay,
        common,
        lambda client, found: _wait_until_ended(client, found, common, wait_states=("running",)),
        stages=("all",),
    )
    _print_replay(snapshot, common)
    return to_replay_exit_code([snapshot])


@app.command
def pause(replay: ReplayId, /, *, common: RemoteOptions = REMOTE) -> int:
    """Pause a replay."""
    return _change_replay(replay, "/pause", common)


@app.command
def resume(replay: ReplayId, /, *, common: RemoteOptions = REMOTE) -> int:
    """Resume a paused or failed replay."""
    return _change_replay(replay, "/resume", common)


@app.command
def cancel(replay: ReplayId, /, *, common: RemoteOptions = REMOTE) -> int:
    """Cancel a replay. Events that it has replayed stay."""
    return _change_replay(replay, "/cancel", common)


def _change_replay(replay: str, path: str, common: RemoteOptions) -> int:
    snapshot = post_by_name(REPLAYS, replay, path, {}, common, stages=("all",))
    return _print_replay(snapshot, common)


def to_replay_exit_code(replays: Sequence[dict[str, Any]]) -> int:
    if any(replay["state"] != "done" for replay in replays):
        return FAILED
    return PARTIAL_FAILURE if any(replay["dead_lettered"] for replay in replays) else OK


async def post_and_wait(
    client: ApiClient, path: str, body: dict[str, Any], common: RemoteOptions
) -> dict[str, Any]:
    """Send the request and wait until each replay that it started has ended."""
    answer = await client.post(path, body)
    replay_ids = answer.get("replays") or ([answer["replay_id"]] if answer.get("replay_id") else [])
    return answer | {
        "replays": [await _wait_until_ended(client, replay, common) for replay in replay_ids]
    }


async def _wait_until_ended(
    client: ApiClient,
    replay: str,
    common: RemoteOptions,
    *,
    wait_states: Collection[str] = ("running", "paused"),
) -> dict[str, Any]:
    """Poll until the replay leaves `wait_states`, printing its progress."""
    last_printed = None
    with resume_hint(
        f"replay {replay} {CONTINUES_WHILE_RUNNING}; show its progress: anabranch replay "
        f"show {replay}"
    ):
        while True:
            snapshot: dict[str, Any] = await client.get(f"/v1/replays/{replay}")
            if (printed := (snapshot["read"], snapshot["state"])) != last_printed:
                last_printed = printed
                eta = snapshot["eta_s"]
                eta_text = f", {eta['low']:.0f} to {eta['high']:.0f} s left" if eta else ""
                common.report_progress(
                    f"{snapshot['stage']}: {snapshot['read']} of {snapshot['total']} events read, "
                    f"{snapshot['state']}{eta_text}",
                    snapshot,
                )
                if snapshot["state"] == "paused":
                    common.print_note(
                        f"replay {replay} is paused; resume it: anabranch replay resume {replay}"
                    )
            if snapshot["state"] not in wait_states:
                return snapshot
            await asyncio.sleep(POLL_S)


def _print_replay(snapshot: dict[str, Any], common: RemoteOptions) -> int:
    return common.show(snapshot, lambda: print_fields(snapshot))


def _parse_offsets(text: str) -> dict[str, int | None]:
    try:
        partition, _, bounds = text.partition(":")
        first, _, end = bounds.partition("-")
        return {
            "partition": int(partition),
            "start": int(first) if first else None,
            "end": int(end) if end else None,
        }
    except ValueError as error:
        raise InvalidRequest(
            f"Invalid offsets {text!r}.", remedy="Use PARTITION:FROM-TO, such as 3:100-200."
        ) from error
