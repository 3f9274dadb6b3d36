"""`anabranch doctor`: run the checks, and print their findings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from anabranch.cli.options import RemoteOptions
from anabranch.cli.output import print_stderr
from anabranch.cli.server_connection import open_client
from anabranch.config.loader import suggest_scheme
from anabranch.doctor import connections
from anabranch.doctor.check_runner import run_check
from anabranch.doctor.checks import run_checks
from schemas.errors import PermanentError
from schemas.findings import Finding


async def run_server_checks(url: str, common: RemoteOptions) -> Sequence[Finding]:
    """Run the checks of a remote server, or read its readiness report without the permission."""
    url = url.rstrip("/")
    readiness = await run_check(
        "server",
        partial(
            connections.check_server_at,
            url,
            url,
            f"Start it with `anabranch up`, or check --server. {suggest_scheme(url)}".strip(),
        ),
    )
    if any(finding.state == "fail" for finding in readiness):
        return readiness
    try:
        async with open_client(common) as client:
            found = await client.get("/v1/doctor")
    # Without the role, and from a server of an earlier version.
    except PermanentError as error:
        return [*readiness, Finding("other checks", "warn", error.detail, error.remedy)]
    return [*readiness, *(Finding(**finding) for finding in found["items"])]


STATE_LABELS = {"pass": "ok  ", "warn": "warn", "fail": "FAIL"}


def doctor(
    *,
    bundle: Path | None = None,
    common: RemoteOptions = RemoteOptions(),  # noqa: B008
) -> int:
    """Check this machine and its connections, or those of --server, without changing anything.

    The checks of a server need the role of an operator; others get its readiness. Exits 1 if a
    check fails.

    Parameters
    ----------
    bundle
        Also write an archive (.zip) for a bug report: versions, settings, findings, consumer lag,
        sizes of tables and the last lines of the log. Secrets are masked.
    """
    from anabranch.process.logs import configure_logs

    if common.server:
        findings = asyncio.run(run_server_checks(common.server, common))
    else:
        settings = common.load_settings()
        configure_logs(settings.logging)  # to stderr: unconfigured, structlog prints to stdout
        findings = asyncio.run(run_checks(settings))
    if bundle is not None:
        from anabranch.cli.support_bundle import write_bundle

        names = asyncio.run(write_bundle(bundle, common, findings))
        print_stderr(f"{bundle}: {', '.join(names)}", quiet=common.quiet)
    has_failed = any(finding.state == "fail" for finding in findings)
    if common.is_json:
        common.print_result(
            {"ok": not has_failed, "checks": [asdict(finding) for finding in findings]}
        )
        return int(has_failed)
    for finding in findings:
        print(f"{STATE_LABELS[finding.state]}  {finding.check}: {finding.detail}")
        if finding.remedy:
            print(f"      → {finding.remedy}")
    return int(has_failed)
