"""Tasks beside a service end with it, and their failures are logged."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from services.background_tasks import run_in_background


async def test_failed_task_is_logged_and_others_continue() -> None:
    async def fail() -> None:
        raise ValueError("bug")

    async def wait() -> None:
        await asyncio.Event().wait()

    with capture_logs() as entries:
        async with run_in_background(fail(), wait()) as (failing, waiting):
            await asyncio.wait([failing])
            await asyncio.sleep(0)
            assert not waiting.done()
    assert waiting.cancelled()
    [entry] = entries
    assert entry["event"] == "background_task_failed"
    assert str(entry["exc_info"]) == "bug"
