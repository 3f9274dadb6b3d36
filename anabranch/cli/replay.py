"""`anabranch replay`: let a stage react once more to what it has read."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from cyclopts import App, Parameter

from anabranch.cli.calls import got, posted, told_moment
from anabranch.cli.exits import FAILED, OK, PARTLY
from anabranch.cli.interrupted import GOES_ON, going_on
from anabranch.cli.options import Remote
from anabranch.cli.output import print_fields, print_table, say
from anabranch.cli.rates import Rate
from schemas.errors import InvalidRequest

app = App(name="replay", help="Let a stage react once more to events it has read.", result_action="return_value")
Flag = Parameter(negative="")
DEFAULT = Remote()
POLL_S = 0.5


@app.command
def start(
    *,
    stage: Annotated[str, Parameter(name=["--stage", "--from"])],
    generation: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    offsets: Annotated[tuple[str, ...], Flag] = (),
    document: Annotated[tuple[UUID, ...], Flag] = (),
    collection: str | None = None,
    rate: Rate = None,
    dry_run: Annotated[bool, Flag] = False,
    wait: bool = True,
    common: Remote = DEFAULT,
) -> int:
    """Read a stage's topic again. What engines said is remembered; events keep their order, so nothing old comes back over what is newer. Exits 5 where some
    events were buried, 1 where it ended before its time.

    Parameters
    ----------
    stage
        Which reacts again.
    generation
        In this one; the live one where nothing is said.
    since
        Events appended then or later; UTC where no zone is given.
    until
        Events appended before; UTC where no zone is given.
    offsets
        PARTITION:FROM-TO, the last one not included; FROM or TO may be left out.
    document
        Of these documents.
    collection
        Of the documents of this collection.
    rate
        Events a second at most: 50, or 50/s.
    dry_run
        Only say what would be read, and how many events would be replayed.
    wait
        Until it is done.
    """
    body: dict[str, Any] = {"stage": stage, "generation": generation, "since": told_moment(since), "until": told_moment(until), "collection": collection}
    body |= {"offsets": [_offsets(text) for text in offsets], "document_ids": [str(one) for one in document] or None, "per_second": rate, "dry_run": dry_run}
    answer = asyncio.run(waited("/v1/replays", body, common)) if wait else posted("/v1/replays", body, common)
    if common.json:
        common.show(answer)
    else:
        print(f"{answer['stage']} reads {answer['events_read']} events of {answer['topic']}" + (f" for {answer['events_chosen']} of them" if dry_run else ""))
        for place in answer["missing"]:
            print(f"no longer there: offsets {place['start']} to {place['end'] - 1} of partition {place['partition']}")
        for found in answer.get("replays", []):
            print(f"{found['state']}: {found['replayed']} replayed, {found['superseded']} overtaken, {found['buried']} buried")
    return came_to(answer.get("replays", []))


@app.command(name="list")
def list_replays(*, common: Remote = DEFAULT) -> int:
    """Replays and redrives, the newest first."""
    page = got("/v1/replays", common)
    if common.json:
        common.show(page)
        return OK
    headings = ("replay_id", "kind", "stage", "state", "read", "total", "replayed", "superseded", "buried")
    print_table(headings, [tuple(item[name] for name in headings) for item in page["items"]])
    return OK


@app.command
def show(replay: UUID, /, *, common: Remote = DEFAULT) -> int:
    """How far one is, its rate, and how long it will take.

    Parameters
    ----------
    replay
        Its id.
    """
    return _tell(got(f"/v1/replays/{replay}", common), common)


@app.command
def status(replay: UUID, /, *, common: Remote = DEFAULT) -> int:
    """The same as `show`.

    Parameters
    ----------
    replay
        Its id.
    """
    return show(replay, common=common)


@app.command
def watch(replay: UUID, /, *, common: Remote = DEFAULT) -> int:
    """Follow one until it ends or is paused. Exits as `start` does; 1 where it is paused.

    Parameters
    ----------
    replay
        Its id.
    """
    found = asyncio.run(_watched(str(replay), common))
    _tell(found, common)
    return came_to([found])


@app.command
def pause(replay: UUID, /, *, common: Remote = DEFAULT) -> int:
    """Stop one for now.

    Parameters
    ----------
    replay
        Its id.
    """
    return _tell(posted(f"/v1/replays/{replay}/pause", {}, common), common)


@app.command
def resume(replay: UUID, /, *, common: Remote = DEFAULT) -> int:
    """Go on with one that was paused, or that failed.

    Parameters
    ----------
    replay
        Its id.
    """
    return _tell(posted(f"/v1/replays/{replay}/resume", {}, common), common)


@app.command
def cancel(replay: UUID, /, *, common: Remote = DEFAULT) -> int:
    """Give one up. What it has replayed stays.

    Parameters
    ----------
    replay
        Its id.
    """
    return _tell(posted(f"/v1/replays/{replay}/cancel", {}, common), common)


def came_to(replays: Sequence[dict[str, Any]]) -> int:
    """The exit code of replays that were waited for."""
    if any(found["state"] != "done" for found in replays):
        return FAILED
    return PARTLY if any(found["buried"] for found in replays) else OK


async def waited(path: str, body: dict[str, Any], common: Remote) -> dict[str, Any]:
    """The answer, with each replay that it began as it ended."""
    from anabranch.cli.serving import api_client

    async with api_client(common, stages=("all",)) as client:
        answer = await client.post(path, body)
        begun = answer.get("replays") or ([answer["replay_id"]] if answer.get("replay_id") else [])
        return answer | {"replays": [await _ended(client, replay, common) for replay in begun]}


async def _watched(replay: str, common: Remote) -> dict[str, Any]:
    from anabranch.cli.serving import api_client

    async with api_client(common, stages=("all",)) as client:
        return await _ended(client, replay, common, waits_in=("running",))


async def _ended(client: Any, replay: str, common: Remote, *, waits_in: Collection[str] = ("running", "paused")) -> dict[str, Any]:
    """As it is once it is in no state that is waited in."""
    shown = None
    with going_on(lambda: f"replay {replay} {GOES_ON}; how far it is: anabranch replay show {replay}"):
        while True:
            found: dict[str, Any] = await client.get(f"/v1/replays/{replay}")
            if (told := (found["read"], found["state"])) != shown:
                shown = told
                common.tell_progress(_progress(found), found)
                if found["state"] == "paused":
                    say(f"replay {replay} waits until somebody resumes it: anabranch replay resume {replay}", quiet=common.quiet)
            if found["state"] not in waits_in:
                return found
            await asyncio.sleep(POLL_S)


def _progress(found: dict[str, Any]) -> str:
    eta = found["eta_s"]
    left = f", {eta['low']:.0f} to {eta['high']:.0f} s left" if eta else ""
    return f"{found['stage']}: {found['read']} of {found['total']} events read, {found['state']}{left}"


def _tell(found: dict[str, Any], common: Remote) -> int:
    if common.json:
        common.show(found)
        return OK
    print_fields(found)
    return OK


def _offsets(text: str) -> dict[str, int | None]:
    try:
        partition, _, bounds = text.partition(":")
        first, _, end = bounds.partition("-")
        return {"partition": int(partition), "start": int(first) if first else None, "end": int(end) if end else None}
    except ValueError as error:
        raise InvalidRequest(f"{text!r} are no offsets", remedy="Write PARTITION:FROM-TO, such as 3:100-200.") from error
