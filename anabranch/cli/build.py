"""`anabranch rebuild` and `anabranch reindex`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from anabranch.cli.exit_codes import FAILED, OK
from anabranch.cli.options import RemoteOptions
from anabranch.cli.output import format_cell, print_stderr, print_table
from anabranch.cli.rates import Rate
from anabranch.cli.resume_hint import CONTINUES_WHILE_RUNNING, resume_hint
from anabranch.identity.approvals import approve, find_restricted_settings
from schemas.errors import InvalidRequest, NotFound, PermanentError

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient

Flag = Parameter(negative="")
DEFAULT = RemoteOptions()
POLL_S = 0.5
WORKER_STAGES = ("all",)
"""Of a server of the command's own: it does the work."""


def rebuild(*, keep: Annotated[bool, Flag] = False, common: RemoteOptions = DEFAULT) -> int:
    """Make the index anew from the log, without any model, beside the one that answers; check that it is equal, and let it answer.

    Where the tables are empty, and only the log and the blobs are left, they are filled in place.

    Parameters
    ----------
    keep
        What was there before stands by, and is not dropped.
    """
    report = asyncio.run(_rebuild(common, keep))
    if common.is_json:
        common.print_result(report)
    else:
        print(
            f"{report['events']} events, {report['rows']} rows in {report['seconds']} s ({report['rows_per_second']} rows/s), {report['engine_calls']} engine calls"
        )
    return OK


def reindex(
    *,
    plan: Annotated[bool, Parameter(name=["--plan", "--dry-run"], negative="")] = False,
    events_per_second: Rate = None,
    wait: Annotated[bool, Flag] = False,
    pause: str | None = None,
    resume: str | None = None,
    common: RemoteOptions = DEFAULT,
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
    _check_exclusive_options(plan=plan, wait=wait, pause=pause, resume=resume, set=common.set)
    return asyncio.run(_reindex(common, plan, events_per_second, wait, pause, resume))


def _check_exclusive_options(**options: object) -> None:
    """Raises InvalidRequest for what cannot be wanted at the same time."""
    set_options = [name for name, value in options.items() if value]
    for option, compatible in (("pause", ()), ("resume", ()), ("plan", ("set",))):
        if option in set_options and (conflicting := [name for name in set_options if name not in (option, *compatible)]):
            raise InvalidRequest(f"--{option} and --{conflicting[0]} do not go together", remedy="Give one of them, and the other with another call.")


async def _rebuild(common: RemoteOptions, keep: bool) -> dict[str, Any]:
    from anabranch.cli.server_connection import open_client

    if (report := await _rebuild_in_place(common)) is not None:
        return report
    async with open_client(common, stages=WORKER_STAGES) as client:
        started = await client.post("/v1/generations", {"purpose": "rebuild", "keep": keep})
        print_stderr(f"building {started['generation']}", quiet=common.quiet)
        return _to_rebuild_report(await _wait_for_build(client, started["generation"], ("live", "standby"), common))


async def _rebuild_in_place(common: RemoteOptions) -> dict[str, Any] | None:
    """What filling empty tables has given; None where there is a server, or an index."""
    from anabranch.cli.server_connection import wait_for_local_server
    from anabranch.composition.recovery import recover_database
    from anabranch.process.data_folder import lock_folder
    from anabranch.process.database import open_database

    if common.server:
        return None
    settings = common.load_settings()
    if await wait_for_local_server(settings) is not None:
        return None
    with lock_folder(settings.data_dir):
        async with open_database(settings) as dsn:
            return await recover_database(settings, dsn)


async def _reindex(common: RemoteOptions, plan: bool, rate: float | None, wait: bool, pause: str | None, resume: str | None) -> int:
    from anabranch.cli.server_connection import open_client, warn_if_server_stops

    assignments: Sequence[str] = common.set
    async with open_client(replace(common, set=()), stages=WORKER_STAGES) as client:
        if not common.server and (restricted := find_restricted_settings(assignments)):
            approve(common.load_settings().data_dir, "settings", restricted)
        if pause or resume:
            pace = {"paused": bool(pause)} | ({"events_per_second": rate} if rate is not None else {})
            return _print_result(await client.patch(f"/v1/generations/{pause or resume}/build", pace), common)
        if plan:
            return _print_result(await client.post("/v1/generations/plan", {"set": list(assignments)}), common)
        started = await client.post("/v1/generations", {"purpose": "reindex", "set": list(assignments), "events_per_second": rate})
        if not wait:
            warn_if_server_stops(client, common)
            return _print_result(started, common)
        print_stderr(f"building {started['generation']}", quiet=common.quiet)
        built = await _wait_for_build(client, started["generation"], ("shadow", "live", "standby"), common)
        return _print_result(built, common) if built["error"] is None else FAILED


async def _wait_for_build(client: ApiClient, name: str, states: Sequence[str], common: RemoteOptions) -> dict[str, Any]:
    """Raises PermanentError with what stopped the build."""
    phase = None
    with resume_hint(lambda: f"the build of {name} {CONTINUES_WHILE_RUNNING}; how far it is: anabranch generations list"):
        while True:
            build = await _fetch_build(client, name)
            if build["error"]:
                raise PermanentError(build["error"]["detail"], code=build["error"]["code"], remedy=build["error"]["remedy"])
            if build["state"] in states:
                return build
            if build["phase"] != phase:
                phase = build["phase"]
                common.report_progress(f"{name}: {phase}", build)
            await asyncio.sleep(POLL_S)


async def _fetch_build(client: ApiClient, name: str) -> dict[str, Any]:
    """Also before it has come to the tables."""
    try:
        return await client.get(f"/v1/generations/{name}/build")
    except NotFound:
        return {"state": "building", "phase": "loading", "error": None}


def _to_rebuild_report(build: dict[str, Any]) -> dict[str, Any]:
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


def _print_result(body: dict[str, Any], common: RemoteOptions) -> int:
    if common.is_json:
        common.print_result(body)
        return OK
    print_table(("what", "value"), [(name, value) for name, value in body.items() if value not in (None, {}) and name != "settings"])
    for name, change in (body.get("settings") or {}).items():
        print(f"{name}: {format_cell(change['from'])} → {format_cell(change['to'])}")
    return OK
