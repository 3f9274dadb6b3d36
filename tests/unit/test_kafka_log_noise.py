"""Delays on a busy machine are no errors: mode's own reports of them are not logged."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from anabranch.config.settings import LoggingSettings
from anabranch.process.logs import configure_logs
from streams.kafka.faust_app import FaustConsumerThread


@pytest.fixture(autouse=True)
def _restored_levels() -> Any:
    names = ("", "mode", "mode.timers", "faust", "aiokafka", "httpx", "httpx2", "uvicorn")
    levels = {name: logging.getLogger(name).level for name in names}
    handlers = logging.getLogger().handlers[:]
    yield
    logging.getLogger().handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def test_late_timers_are_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(LoggingSettings(format="json"))
    logging.getLogger("mode.timers").warning("Timer %s is overlapping", "livelock")
    assert capsys.readouterr().err == ""
    logging.getLogger("mode.services").warning("something else")
    logging.getLogger("mode.timers").error("a failure")
    assert capsys.readouterr().err.count("\n") == 2


async def test_delayed_keep_alive_wakes_the_thread_without_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class DelayedThread(FaustConsumerThread):
        def __init__(self) -> None:
            self.last_wakeup_at, self.n_sleeps, self.parent_loop = (
                -1000.0,
                0,
                asyncio.get_running_loop(),
            )
            self.logger = logging.getLogger("test")

        @property
        def should_stop(self) -> bool:
            return self.n_sleeps >= 3

        async def sleep(self, n: Any, **_: Any) -> None:
            self.n_sleeps += bool(n)

    thread = DelayedThread()
    await thread._keepalive2()
    assert thread.last_wakeup_at > 0 and not caplog.records
    await asyncio.sleep(0)
