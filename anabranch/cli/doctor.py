"""`anabranch doctor`: run the checks, and print their findings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

from anabranch.cli.options import RemoteOptions
from anabranch.config.loader import suggest_scheme
from anabranch.config.settings import Settings
from anabranch.doctor import connections, machine, stalls
from anabranch.doctor.findings import Check, Finding, run_check


async def run_server_checks(url: str) -> Sequence[Finding]:
    """Check a remote server by its readiness report."""
    url = url.rstrip("/")
    return await run_check(
        "server",
        partial(
            connections.check_server_at,
            url,
            url,
            f"Start it with `anabranch up`, or check --server. {suggest_scheme(url)}".strip(),
        ),
    )


async def run_checks(settings: Settings) -> Sequence[Finding]:
    checks: dict[str, Check] = {
        "python": machine.check_python,
        "packages": machine.check_distributions,
        "local models": machine.check_offline_models,
        "embedded Postgres": partial(machine.check_postgres_binaries, settings),
        "data folder": partial(machine.check_data_folder, settings),
        "open files": machine.check_open_file_limit,
        "parser confinement": machine.check_parser_confinement,
        "settings file": partial(machine.check_settings_file, settings),
        "Java for Kafka": machine.check_kafka_tools,
        "server": partial(connections.check_server, settings),
        "Postgres": partial(
            stalls.run_naming_lock_holder, settings, partial(connections.check_database, settings)
        ),
        "locks": partial(stalls.check_locks, settings),
        "Kafka": partial(connections.check_kafka, settings),
        "stages": partial(
            stalls.run_naming_lock_holder, settings, partial(stalls.check_stages, settings)
        ),
        "blob store": partial(connections.check_blobs, settings),
        "models": partial(connections.check_models, settings),
    }
    return [finding for name, check in checks.items() for finding in await run_check(name, check)]


STATUS_LABELS = {"pass": "ok  ", "warn": "warn", "fail": "FAIL"}


def doctor(*, common: RemoteOptions = RemoteOptions()) -> int:  # noqa: B008
    """Check this machine and its connections, or those of --server, without changing anything.

    Exits 1 if a check fails.
    """
    from anabranch.process.logs import configure_logs

    if common.server:
        findings = asyncio.run(run_server_checks(common.server))
    else:
        settings = common.load_settings()
        configure_logs(settings.logging)  # to stderr: unconfigured, structlog prints to stdout
        findings = asyncio.run(run_checks(settings))
    has_failed = any(finding.status == "fail" for finding in findings)
    if common.is_json:
        common.print_result(
            {"ok": not has_failed, "checks": [asdict(finding) for finding in findings]}
        )
        return int(has_failed)
    for finding in findings:
        print(f"{STATUS_LABELS[finding.status]}  {finding.name}: {finding.detail}")
        if finding.fix:
            print(f"      → {finding.fix}")
    return int(has_failed)
