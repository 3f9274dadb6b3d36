"""Concurrent calls that share one statement.

Batches that form from the results of concurrent jobs.

Tasks beside a service, shared results, and the table of lags.

Temporary files in the data folder.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from anabranch.cli.topics import _omit_idle
from engines.disk import FOLDER, open_temporary_folder
from schemas.batching import CallBatcher
from schemas.errors import DatabaseUnavailable, TransientError
from services.background_tasks import run_in_background
from services.monitoring.overview import SharedResult
from streams.sources.concurrent_batches import run_in_batches


async def test_results_that_finish_during_a_batch_form_the_next() -> None:
    batches: list[list[int]] = []
    release = [asyncio.Event() for _ in range(5)]

    async def finish(number: int) -> int:
        await release[number].wait()
        return number

    async def handle(batch: list[int]) -> None:
        batches.append(sorted(batch))
        if batch == [0]:
            for event in release[1:4]:
                event.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if 3 in batch:
            release[4].set()

    release[0].set()
    await run_in_batches((finish(number) for number in range(5)), 8, handle)
    assert batches == [[0], [1, 2, 3], [4]]


async def test_jobs_start_no_sooner_than_the_limit_allows() -> None:
    running, most, handled = 0, 0, []

    async def finish(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return number

    async def handle(batch: list[int]) -> None:
        handled.extend(batch)

    await run_in_batches((finish(number) for number in range(50)), 4, handle)
    assert sorted(handled) == list(range(50)) and most == 4


@pytest.mark.parametrize("fails", ["job", "batch"])
async def test_error_cancels_running_jobs(fails: str) -> None:
    cancelled = asyncio.Event()

    async def wait_forever() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return 0

    async def finish() -> int:
        await asyncio.sleep(0)
        if fails == "job":
            raise ValueError("unreadable")
        return 1

    async def handle(batch: list[int]) -> None:
        raise ValueError("unreadable")

    with pytest.raises(ValueError, match="unreadable"):
        await run_in_batches(iter([wait_forever(), finish()]), 4, handle)
    assert cancelled.is_set()


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


def make_line(stage: str, generation: str, group: str, lag: int | None) -> dict[str, Any]:
    return {
        "stage": stage,
        "generation": generation,
        "group": group,
        "topic": "ocr_done",
        "lag": lag,
    }


@pytest.mark.parametrize(
    ("lags", "shown"),
    [((0, 0), ["g1"]), ((0, 5), ["g2"]), ((5, 0), ["g1"]), ((3, 5), ["g1", "g2"])],
)
def test_stage_served_by_two_groups_has_one_line_unless_both_lag(
    lags: tuple[int, int], shown: list[str]
) -> None:
    lines = [
        make_line("chunk", "g2", "g1", lags[0]),
        make_line("chunk", "g2", "g2", lags[1]),
        make_line("embed", "g2", "embed.g2", 0),
    ]
    assert [line["group"] for line in _omit_idle(lines)] == [*shown, "embed.g2"]


def test_unknown_lags_and_other_generations_are_kept() -> None:
    lines = [make_line("chunk", "g1", "a", None), make_line("chunk", "g2", "b", 0)]
    assert _omit_idle(lines) == lines


async def test_concurrent_callers_share_one_query_and_its_result() -> None:
    calls, released = 0, asyncio.Event()

    async def fetch() -> int:
        nonlocal calls
        calls += 1
        await released.wait()
        return calls

    shared = SharedResult(fetch, max_age_s=60)
    callers = [asyncio.create_task(shared.get()) for _ in range(5)]
    await asyncio.sleep(0)
    # One that disconnects does not take the result from the others.
    callers[0].cancel()
    released.set()
    assert await asyncio.gather(*callers[1:]) == [1, 1, 1, 1]
    assert await shared.get() == 1 and calls == 1


async def test_result_expires_by_age() -> None:
    calls = 0

    async def fetch() -> int:
        nonlocal calls
        calls += 1
        return calls

    shared = SharedResult(fetch, max_age_s=0.0)
    assert await shared.get() == 1
    await asyncio.sleep(0.01)
    assert await shared.get() == 2


async def test_error_is_raised_to_its_callers_and_not_kept() -> None:
    outcomes: list[Exception | str] = [RuntimeError("down"), "up"]

    async def fetch() -> str:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    shared = SharedResult(fetch, max_age_s=60)
    with pytest.raises(RuntimeError, match="down"):
        await shared.get()
    await asyncio.sleep(0.01)
    assert await shared.get() == "up"


UPLOAD_SCRIPT = """
import asyncio, sys
from pathlib import Path
from engines.disk import open_temporary_folder
from engines.blobs import open_blobs

async def half():
    yield b"Quetzalcoatlus" * 10_000
    print("half", flush=True)
    await asyncio.sleep(600)

with open_temporary_folder(Path(sys.argv[1])) as folder:
    blobs = open_blobs("memory://", temporary_dir=folder)
    asyncio.run(blobs.put_stream("uploads/", half(), limit=10**9))
"""


def list_uploads(folder: Path) -> list[Path]:
    return [path for path in (folder / FOLDER).rglob("anabranch-upload-*") if path.is_file()]


def test_upload_of_killed_process_is_removed_at_next_start(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", UPLOAD_SCRIPT, str(tmp_path)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"half\n"
        (upload,) = list_uploads(tmp_path)
        assert stat.S_IMODE(upload.stat().st_mode) == 0o600
        assert (
            stat.S_IMODE(upload.parent.stat().st_mode)
            == stat.S_IMODE((tmp_path / FOLDER).stat().st_mode)
            == 0o700
        )
        with open_temporary_folder(tmp_path) as own:
            assert list_uploads(tmp_path) == [upload], "its process lives"
        assert not own.exists()
        os.kill(process.pid, signal.SIGKILL)
    assert list_uploads(tmp_path) == [upload]
    with open_temporary_folder(tmp_path) as own:
        assert [path for path in (tmp_path / FOLDER).iterdir() if path.is_dir()] == [own]


class Doubler:
    """Doubles numbers, and records its batches. Fails for the numbers in `failures`."""

    def __init__(self, failures: dict[int, Exception] | None = None) -> None:
        self.batches: list[list[int]] = []
        self.failures = failures or {}
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, numbers: list[int]) -> list[int]:
        self.batches.append(numbers)
        await self.gate.wait()
        for number in numbers:
            if number in self.failures:
                raise self.failures[number]
        return [2 * number for number in numbers]


async def test_calls_during_a_batch_form_the_next_one() -> None:
    doubler = Doubler()
    batcher = CallBatcher(doubler, lambda _: 1 / 3)
    doubler.gate.clear()
    first = asyncio.create_task(batcher.run(1))
    while not doubler.batches:
        await asyncio.sleep(0)
    others = [asyncio.create_task(batcher.run(number)) for number in (2, 3, 4, 5)]
    await asyncio.sleep(0)
    doubler.gate.set()
    assert await asyncio.gather(first, *others) == [2, 4, 6, 8, 10]
    assert doubler.batches == [[1], [2, 3, 4], [5]]
    assert await batcher.run(7) == 14


async def test_only_the_culprit_of_a_batch_fails() -> None:
    doubler = Doubler({2: ValueError("two")})
    batcher = CallBatcher(doubler)
    results = await asyncio.gather(*map(batcher.run, (1, 2, 3)), return_exceptions=True)
    assert results[0] == 2 and results[2] == 6
    assert isinstance(results[1], ValueError)
    assert doubler.batches == [[1, 2, 3], [1], [2], [3]]


async def test_outage_fails_all_calls_of_a_batch_at_once() -> None:
    doubler = Doubler({2: TransientError("away")})
    batcher = CallBatcher(doubler)
    results = await asyncio.gather(*map(batcher.run, (1, 2, 3)), return_exceptions=True)
    assert [type(result) for result in results] == [TransientError] * 3
    assert doubler.batches == [[1, 2, 3]]


async def test_cancelled_caller_does_not_disturb_others() -> None:
    doubler = Doubler()
    batcher = CallBatcher(doubler)
    doubler.gate.clear()
    calls = [asyncio.create_task(batcher.run(number)) for number in (1, 2)]
    while not doubler.batches:
        await asyncio.sleep(0)
    calls[0].cancel()
    doubler.gate.set()
    assert await calls[1] == 4
    with pytest.raises(asyncio.CancelledError):
        await calls[0]
    assert await batcher.run(3) == 6


async def test_cancelled_batch_fails_all_waiting_callers() -> None:
    """Something that the batch awaits may cancel it: its callers must not wait for ever."""

    async def cancel(numbers: list[int]) -> list[int]:
        raise asyncio.CancelledError

    batcher = CallBatcher(cancel, lambda _: 1)
    async with asyncio.timeout(60):
        results = await asyncio.gather(*map(batcher.run, (1, 2)), return_exceptions=True)
    assert [type(result) for result in results] == [DatabaseUnavailable] * 2
