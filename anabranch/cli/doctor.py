"""`anabranch doctor`."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from anabranch.cli.options import Remote

MARKS = {"pass": "ok  ", "warn": "warn", "fail": "FAIL"}


def doctor(*, common: Remote = Remote()) -> int:  # noqa: B008
    """Check this machine and what it connects to, or what --server connects to. Changes nothing; exits 1 when something fails."""
    from anabranch.doctor.examination import examine, examine_server

    findings = asyncio.run(examine_server(common.server) if common.server else examine(common.settings()))
    failed = any(finding.status == "fail" for finding in findings)
    if common.json:
        common.show({"ok": not failed, "checks": [asdict(finding) for finding in findings]})
        return int(failed)
    for finding in findings:
        print(f"{MARKS[finding.status]}  {finding.name}: {finding.detail}")
        if finding.fix:
            print(f"      → {finding.fix}")
    return int(failed)
