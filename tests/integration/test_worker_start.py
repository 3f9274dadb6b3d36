"""Workers that start in any order."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from anabranch.composition.worker import Worker, prepare_worker
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from anabranch.process import worker_process
from anabranch.process.stage_selection import select_stages
from anabranch.process.worker_process import AUTOGROUP_FILE, lower_priority
from processors import STAGES
from schemas.events import Content, DocumentReceived
from sql.pool import Pool
from streams.publisher import build_raw_record
from tests.fakes.null_embedder import NullEmbedder
from tests.support.eventually import eventually
from tests.support.forked_process import fork_process
from tests.support.simulated_pipeline import LineParser

STAGES_WITHOUT_CONTROL = [stage.name for stage in STAGES if stage.name != "control"]


@asynccontextmanager
async def run_worker(folder: Path, dsn: str, *stages: str) -> AsyncIterator[Worker]:
    overrides = Overrides(parser=LineParser(), embedder=NullEmbedder(dimension=8))
    async with prepare_worker(
        Settings(data_dir=folder), dsn, stages=select_stages(stages), overrides=overrides
    ) as worker:
        running = asyncio.create_task(worker.run())
        try:
            yield worker
            assert not running.done(), running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def count_topic_events(pool: Pool, topic: str) -> int:
    return int(await pool.fetchval("select count(*) from events where topic = $1", topic))


async def test_stages_wait_for_their_generation_tables(database: str, tmp_path: Path) -> None:
    async with run_worker(tmp_path, database, *STAGES_WITHOUT_CONTROL) as worker:
        pool, event = (
            worker.storage.pool,
            DocumentReceived(external_id="early", content=Content(text="Herons wait.")),
        )
        await worker.storage.log.append(
            [
                await build_raw_record(
                    event, "1", time=datetime(2026, 1, 1, tzinfo=UTC), codec=worker.storage.codec
                )
            ]
        )
        await eventually(lambda: count_topic_events(pool, "accepted"))
        async with run_worker(tmp_path, database, "control"):
            await eventually(lambda: count_topic_events(pool, "outcomes"))
        assert await pool.fetchval("select count(*) from visible") == 1
        assert await count_topic_events(pool, "dead_letters") == 0


def lower_and_print_priority(leads_session: bool) -> None:
    if leads_session:
        os.setsid()
    lower_priority(7)
    print(os.nice(0), AUTOGROUP_FILE.read_text(), flush=True)


# The file is empty for processes that a control group schedules.
@pytest.mark.skipif(
    not (AUTOGROUP_FILE.exists() and AUTOGROUP_FILE.read_text()),
    reason="no autogroup schedules these tests",
)
@pytest.mark.parametrize("leads_session", [True, False])
def test_only_worker_that_leads_a_session_lowers_its_priority(
    leads_session: bool, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    child = fork_process(lower_and_print_priority, leads_session, log=log, environment={})
    assert child.wait() == 0, log.read_text()
    # "/autogroup-25 nice 7"
    priority, group, _, group_priority = log.read_text().split()
    assert int(priority) == os.nice(0) + 7
    own_group, _, own_group_priority = AUTOGROUP_FILE.read_text().split()
    assert (group != own_group) == leads_session
    assert group_priority == (priority if leads_session else own_group_priority)


def test_worker_that_cannot_lower_its_session_starts_and_warns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(worker_process, "AUTOGROUP_FILE", tmp_path)
    monkeypatch.setattr(os, "getsid", lambda _: os.getpid())
    with capture_logs() as logs:
        lower_priority(0)
    assert [entry["event"] for entry in logs] == ["session_priority_not_lowered"]
