"""`anabranch rebuild` and `anabranch reindex`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from anabranch.approvals import approve, closed_settings
from anabranch.cli.exits import FAILED, OK
from anabranch.cli.interrupted import GOES_ON, going_on
from anabranch.cli.options import Remote
from anabranch.cli.output import cell, print_table, say
from anabranch.cli.rates import Rate
from schemas.errors import InvalidRequest, NotFound, PermanentError

if TYPE_CHECKING:
    from anabranch.client import ApiClient

Flag = Parameter(negative="")
DEFAULT = Remote()
POLL_S = 0.5
STAGES = ("all",)
"""Of a server of the command's own: it does the work."""


def rebuild(*, keep: Annotated[bool, Flag] = False, common: Remote = DEFAULT) -> int:
    """Make the index anew from the log, without any model, beside the one that answers; check that it is equal, and let it answer.

    Where the tables are empty, and only the log and the blobs are left, they are filled in place.

    Parameters
    ----------
    keep
        What was there before stands by, and is not dropped.
    """
    found = asyncio.run(_rebuild(common, keep))
    if common.json:
        common.show(found)
    else:
        print(
            f"{found['events']} events, {found['rows']} rows in {found['seconds']} s ({found['rows_per_second']} rows/s), {found['engine_calls']} engine calls"
        )
    return OK


def reindex(
    *,
    plan: Annotated[bool, Parameter(name=["--plan", "--dry-run"], negative="")] = False,
    events_per_second: Rate = None,
    wait: Annotated[bool, Flag] = False,
    pause: str | None = None,
    resume: str | None = None,
    common: Remote = DEFAULT,
) -> int:
    """Build an index with other settings (`--set`) beside the one that answers. It is compared and promoted by `anabranch generations`.

    Parameters
    ----------
    plan
        Only say what it would take.
    events_per_second
        Read no faster than that: 50, or 50/s.
    wait
        Until it is built.
    pause
        A generation that is being built: let it rest.
    resume
        A generation that rests: let it go on.
    """
    _check_one(plan=plan, wait=wait, pause=pause, resume=resume, set=common.set)
    return asyncio.run(_reindex(common, plan, events_per_second, wait, pause, resume))


def _check_one(**given: object) -> None:
    """Raises InvalidRequest for what cannot be wanted at the same time."""
    named = [name for name, value in given.items() if value]
    for alone, beside in (("pause", ()), ("resume", ()), ("plan", ("set",))):
        if alone in named and (others := [name for name in named if name not in (alone, *beside)]):
            raise InvalidRequest(f"--{alone} and --{others[0]} do not go together", remedy="Give one of them, and the other with another call.")


async def _rebuild(common: Remote, keep: bool) -> dict[str, Any]:
    from anabranch.cli.serving import api_client

    if (filled := await _in_place(common)) is not None:
        return filled
    async with api_client(common, stages=STAGES) as client:
        started = await client.post("/v1/generations", {"purpose": "rebuild", "keep": keep})
        say(f"building {started['generation']}", quiet=common.quiet)
        return _rebuilt(await _until(client, started["generation"], ("live", "standby"), common))


async def _in_place(common: Remote) -> dict[str, Any] | None:
    """What filling empty tables has given; None where there is a server, or an index."""
    from anabranch.background.recovery import recover
    from anabranch.cli.serving import living_server
    from anabranch.process.data_folder import locked
    from anabranch.process.database import database

    if common.server:
        return None
    settings = common.settings()
    if await living_server(settings) is not None:
        return None
    with locked(settings.data_dir):
        async with database(settings) as dsn:
            return await recover(settings, dsn)


async def _reindex(common: Remote, plan: bool, rate: float | None, wait: bool, pause: str | None, resume: str | None) -> int:
    from anabranch.cli.serving import api_client, tell_who_goes_on

    sets: Sequence[str] = common.set
    async with api_client(replace(common, set=()), stages=STAGES) as client:
        if not common.server and (closed := closed_settings(sets)):
            approve(common.settings().data_dir, "settings", closed)
        if pause or resume:
            pace = {"paused": bool(pause)} | ({"events_per_second": rate} if rate is not None else {})
            return _tell(await client.patch(f"/v1/generations/{pause or resume}/build", pace), common)
        if plan:
            return _tell(await client.post("/v1/generations/plan", {"set": list(sets)}), common)
        started = await client.post("/v1/generations", {"purpose": "reindex", "set": list(sets), "events_per_second": rate})
        if not wait:
            tell_who_goes_on(client, common)
            return _tell(started, common)
        say(f"building {started['generation']}", quiet=common.quiet)
        built = await _until(client, started["generation"], ("shadow", "live", "standby"), common)
        return _tell(built, common) if built["error"] is None else FAILED


async def _until(client: ApiClient, name: str, states: Sequence[str], common: Remote) -> dict[str, Any]:
    """Raises PermanentError with what stopped the build."""
    phase = None
    with going_on(lambda: f"the build of {name} {GOES_ON}; how far it is: anabranch generations list"):
        while True:
            build = await _build(client, name)
            if build["error"]:
                raise PermanentError(build["error"]["detail"], code=build["error"]["code"], remedy=build["error"]["remedy"])
            if build["state"] in states:
                return build
            if build["phase"] != phase:
                phase = build["phase"]
                common.tell_progress(f"{name}: {phase}", build)
            await asyncio.sleep(POLL_S)


async def _build(client: ApiClient, name: str) -> dict[str, Any]:
    """Also before it has come to the tables."""
    try:
        return await client.get(f"/v1/generations/{name}/build")
    except NotFound:
        return {"state": "building", "phase": "loading", "error": None}


def _rebuilt(build: dict[str, Any]) -> dict[str, Any]:
    from datetime import datetime

    seconds = round((datetime.fromisoformat(build["built_at"]) - datetime.fromisoformat(build["started_at"])).total_seconds(), 2)
    return {
        "generation": build["generation"],
        "events": build["events"],
        "rows": build["rows"],
        "seconds": seconds,
        "rows_per_second": round(build["rows"] / max(seconds, 0.01)),
        "engine_calls": sum(build["engine_calls"].values()),
    }


def _tell(body: dict[str, Any], common: Remote) -> int:
    if common.json:
        common.show(body)
        return OK
    print_table(("what", "value"), [(name, value) for name, value in body.items() if value not in (None, {}) and name != "settings"])
    for name, change in (body.get("settings") or {}).items():
        print(f"{name}: {cell(change['from'])} → {cell(change['to'])}")
    return OK
