"""A stopped process ends even when one of its tasks ignores cancellation."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

STUBBORN_SCRIPT = """
import asyncio
from anabranch.process import shutdown

shutdown.STOP_TIMEOUT_S = 0.3

async def stubborn():
    print("at work", flush=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

asyncio.run(shutdown.run_until_stopped(stubborn()))
"""


def test_hanging_task_is_abandoned_and_reported() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STUBBORN_SCRIPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "at work\n"
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "not everything stopped" in stderr
