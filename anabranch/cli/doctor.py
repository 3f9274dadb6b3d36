"""`anabranch doctor`."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from anabranch.cli.options import Common

MARKS = {"pass": "ok  ", "warn": "warn", "fail": "FAIL"}


def doctor(*, common: Common = Common()) -> int:  # noqa: B008
    """Check this machine and what it connects to. Changes nothing; exits 1 when something fails."""
    from anabranch.doctor.examination import examine

    findings = asyncio.run(examine(common.settings()))
    failed = any(finding.status == "fail" for finding in findings)
    if common.json:
        common.show({"ok": not failed, "checks": [asdict(finding) for finding in findings]})
        return int(failed)
    for finding in findings:
        print(f"{MARKS[finding.status]}  {finding.name}: {finding.detail}")
        if finding.fix:
            print(f"      → {finding.fix}")
    return int(failed)
