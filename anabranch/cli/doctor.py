"""`anabranch doctor`."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from anabranch.cli.options import RemoteOptions

STATUS_LABELS = {"pass": "ok  ", "warn": "warn", "fail": "FAIL"}


def doctor(*, common: RemoteOptions = RemoteOptions()) -> int:  # noqa: B008
    """Check this machine and its connections, or those of --server, without changing anything.

    Exits 1 if a check fails.
    """
    from anabranch.doctor.checks import run_checks, run_server_checks
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
