"""`anabranch rebuild` and `anabranch reindex`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from anabranch.cli.api_calls import LONG_TIMEOUT_S
from anabranch.cli.errors import FAILED, OK
from anabranch.cli.options import REMOTE, RemoteOptions, make_conflict_error
from anabranch.cli.output import (
    CONTINUES_WHILE_RUNNING,
    format_cell,
    print_stderr,
    print_table,
    resume_hint,
)
from anabranch.cli.replay import Rate
from anabranch.identity.approvals import approve, find_restricted_settings
from schemas.errors import NotFound, PermanentError

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient

POLL_S = 0.5
WORKER_STAGES = ("all",)
"""Stages of a temporary server, which builds the generation."""


def rebuild(*, keep_previous: bool = False, common: RemoteOptions = REMOTE) -> int:
    """Rebuild the index from the log without calling a model.

    The new generation is compared with the live one and replaces it if both are equal. If the
    tables are empty, and only the log and the blobs are left, the tables are filled in place.

    Args:
        keep_previous: Keep the previous generation on standby instead of dropping it.
    """
    report = asyncio.run(_rebuild(common, keep_previous))
    if not common.print_if_json(report):
        print(
            f"{report['events']} events, {report['rows']} rows in {report['seconds']} s "
            f"({report['rows_per_second']} rows/s), {report['engine_calls']} engine calls"
        )
        if missing := report.get("documents_without_keys"):
            print_stderr(
                f"The keystore has no keys for events of {len(missing)} documents. Ingress takes "
                "in what topic raw "
                f"still holds; send the others again: {', '.join(missing)}"
            )
    return OK


def reindex(
    *,
    plan: Annotated[bool, Parameter(name=["--plan", "--dry-run"])] = False,
    events_per_second: Rate = None,
    wait: bool = False,
    pause: str | None = None,
    resume: str | None = None,
    common: RemoteOptions = REMOTE,
) -> int:
    """Build an index with other settings (`--set`) beside the live one.

    Calibrate it with `anabranch calibrate`, which `--wait` does at the end. Compare and promote it
    with `anabranch generations`.

    Args:
        plan: Show the cost of the build without starting it.
        events_per_second: Maximum events per second: 50, or 50/s.
        wait: Wait until the generation is built, and calibrate it.
        pause: Pause the build of this generation.
        resume: Resume the build of this generation.
    """
    options = {"plan": plan, "wait": wait, "pause": pause, "resume": resume, "set": common.set}
    set_options = [name for name, value in options.items() if value]
    for option, compatible in (("pause", ()), ("resume", ()), ("plan", ("set",))):
        conflicting = [name for name in set_options if name not in (option, *compatible)]
        if option in set_options and conflicting:
            raise make_conflict_error(f"--{option}", f"--{conflicting[0]}")
    return asyncio.run(_reindex(common, plan, events_per_second, wait, pause, resume))


async def _rebuild(common: RemoteOptions, keep_previous: bool) -> dict[str, Any]:
    from anabranch.cli.server_connection import open_client, wait_for_local_server
    from anabranch.composition.storage import recover_database
    from anabranch.process.data_folder import lock_folder
    from anabranch.process.database import open_database

    settings = None if common.server else common.load_settings()
    # Without a server, empty tables are filled in place.
    if settings is not None and await wait_for_local_server(settings) is None:
        # Locked, so that no server starts while the tables are filled.
        with lock_folder(settings.data_dir):
            async with open_database(settings) as dsn:
                if (report := await recover_database(settings, dsn)) is not None:
                    return asdict(report)
    async with open_client(common, stages=WORKER_STAGES) as client:
        started = await client.post(
            "/v1/generations", {"purpose": "rebuild", "keep_previous": keep_previous}
        )
        common.print_note(f"building {started['generation']}")
        return _to_rebuild_report(
            await _wait_for_build(client, started["generation"], ("live", "standby"), common)
        )


async def _reindex(
    common: RemoteOptions,
    plan: bool,
    rate: float | None,
    wait: bool,
    pause: str | None,
    resume: str | None,
) -> int:
    from httpx2 import Timeout

    from anabranch.cli.server_connection import open_client, warn_if_server_stops

    assignments: Sequence[str] = common.set
    # The assignments describe the new generation, not a temporary server.
    async with open_client(replace(common, set=()), stages=WORKER_STAGES) as client:
        # Without --server the caller owns the data folder; over HTTP such settings need this
        # approval.
        if not common.server and (restricted := find_restricted_settings(assignments)):
            approve(common.load_settings().data_dir, "settings", restricted)
        if pause or resume:
            pace = {"paused": bool(pause)} | (
                {"events_per_second": rate} if rate is not None else {}
            )
            return _print_result(
                await client.call("PATCH", f"/v1/generations/{pause or resume}/build", pace), common
            )
        if plan:
            return _print_result(
                await client.post("/v1/generations/plan", {"set": list(assignments)}), common
            )
        started = await client.post(
            "/v1/generations",
            {"purpose": "reindex", "set": list(assignments), "events_per_second": rate},
        )
        if not wait:
            warn_if_server_stops(client, common)
            return _print_result(started, common)
        common.print_note(f"building {started['generation']}")
        built = await _wait_for_build(
            client, started["generation"], ("shadow", "live", "standby"), common
        )
        if built["error"] is not None:
            return FAILED
        # Without a calibration of its own it could not be promoted.
        common.report_progress(f"{started['generation']}: calibrating", built)
        client.http.timeout = Timeout(LONG_TIMEOUT_S, connect=10)
        await client.post("/v1/calibrations", {"generation": started["generation"]})
        return _print_result(built, common)


async def _wait_for_build(
    client: ApiClient, name: str, states: Sequence[str], common: RemoteOptions
) -> dict[str, Any]:
    """Poll until the generation is in one of the states.

    Raises PermanentError if the build fails.
    """
    phase = None
    with resume_hint(
        f"the build of {name} {CONTINUES_WHILE_RUNNING}; show its progress: anabranch "
        "generations list"
    ):
        while True:
            try:
                build = await client.get(f"/v1/generations/{name}/build")
            except NotFound:
                # The event has not reached the tables yet.
                build = {"state": "building", "phase": "loading", "error": None}
            if build["error"]:
                raise PermanentError(
                    build["error"]["detail"],
                    code=build["error"]["code"],
                    remedy=build["error"]["remedy"],
                )
            if build["state"] in states:
                return build
            if build["phase"] != phase:
                phase = build["phase"]
                common.report_progress(f"{name}: {phase}", build)
            await asyncio.sleep(POLL_S)


def _to_rebuild_report(build: dict[str, Any]) -> dict[str, Any]:
    started_at, built_at = (
        datetime.fromisoformat(build[name]) for name in ("started_at", "built_at")
    )
    seconds = round((built_at - started_at).total_seconds(), 2)
    return {
        "generation": build["generation"],
        "events": build["events"],
        "rows": build["rows"],
        "seconds": seconds,
        "rows_per_second": round(build["rows"] / max(seconds, 0.01)),
        "engine_calls": sum(build["engine_calls"].values()),
    }


def _print_result(body: dict[str, Any], common: RemoteOptions) -> int:
    if common.print_if_json(body):
        return OK
    print_table(
        ("field", "value"),
        [
            (name, value)
            for name, value in body.items()
            if value not in (None, {}) and name != "settings"
        ],
    )
    for name, change in (body.get("settings") or {}).items():
        print(f"{name}: {format_cell(change['from'])} → {format_cell(change['to'])}")
    return OK
