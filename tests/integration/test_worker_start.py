"""Start, supervision and forced end of workers and their processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from anabranch.composition.worker import Worker, prepare_worker
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from anabranch.process import worker_process
from anabranch.process.fork_server import STDERR_FD, ForkServer
from anabranch.process.ingress_settings import select_stages
from anabranch.process.supervisor import MAX_FIRST_STARTS, ChildProcess
from anabranch.process.worker_process import AUTOGROUP_FILE, lower_priority
from processors import STAGES
from schemas.errors import ConfigurationError, FatalError
from schemas.events import Content, DocumentReceived
from schemas.generations import Generation, IndexConfig
from schemas.topics import Record
from services.recovery.restore_check import CONTROL_GROUP, check_tables_current
from services.storage import Storage
from sql.database import Pool
from streams.cloudevents import SIGNATURE_HEADER
from streams.publisher import build_raw_record
from tests.fakes.null_embedder import NullEmbedder
from tests.support.eventually import eventually
from tests.support.forked_process import fork_process
from tests.support.generation_copies import apply_control_rows, created_row
from tests.support.shared_log import SharedLog, acknowledge_offset, do_nothing, open_storage
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


FIRST_GENERATION = Generation(name="g1", config=IndexConfig(), how={}, topics={}, state="building")


@pytest.fixture
def log() -> SharedLog:
    return SharedLog()


@pytest.fixture
async def storage(tmp_path: Path, database: str, log: SharedLog) -> AsyncIterator[Storage]:
    async with open_storage(log, tmp_path, database) as prepared:
        yield prepared


async def test_concurrent_first_generation_does_not_trigger_recovery(
    storage: Storage, log: SharedLog
) -> None:
    async def made() -> None:
        log.concurrent_work = do_nothing
        await apply_control_rows(storage.pool, created_row(FIRST_GENERATION))
        await acknowledge_offset(storage.pool, log, CONTROL_GROUP, 1)

    log.concurrent_work = made
    await check_tables_current(storage, {})


@pytest.mark.parametrize("decision", ["erasure.requested", "generation.promoted"])
async def test_decision_applied_concurrently_is_not_missed(
    storage: Storage, log: SharedLog, decision: str
) -> None:
    await apply_control_rows(storage.pool, created_row(FIRST_GENERATION))
    await acknowledge_offset(storage.pool, log, CONTROL_GROUP, 1)

    async def erased() -> None:
        log.concurrent_work = do_nothing
        signatures = storage.codec.signer
        assert signatures is not None
        for kind in ("generation.created", decision):
            headers = {"ce_type": f"{kind}.v1".encode()}
            await log.append(
                [
                    Record(
                        "control",
                        b"r",
                        b"{}",
                        headers | {SIGNATURE_HEADER: signatures.sign("control", b"{}", headers)},
                    )
                ]
            )
        await acknowledge_offset(storage.pool, log, CONTROL_GROUP, 2)

    log.concurrent_work = erased
    await check_tables_current(storage, {})
    for lose in ("update consumer_offsets set next_offset = 1", "delete from consumer_offsets"):
        await storage.pool.execute(lose)
        with pytest.raises(ConfigurationError) as refused:
            await check_tables_current(storage, {})
        missed = decision if "update" in lose else "generation.created"
        assert refused.value.code == "TABLES_RESTORED" and missed in refused.value.detail


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


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer() as server:
        yield server


def make_child(
    fork_server: ForkServer, *arguments: str, settled: bool = False
) -> tuple[ChildProcess, list[int]]:
    starts: list[int] = []
    variables: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
    variables.set_result({})
    made = ChildProcess(
        fork_server,
        "tried",
        arguments,
        variables,
        None,
        on_start=lambda: starts.append(1),
        first_pause_s=0.01,
        max_pause_s=0.02,
        is_settled=settled,
    )
    return made, starts


async def test_misconfigured_child_stops_supervision_immediately(fork_server: ForkServer) -> None:
    tried, starts = make_child(fork_server, "worker", "--stages", "nonsense")
    with pytest.raises(FatalError) as caught:
        await tried.supervise()
    assert (caught.value.code, len(starts)) == ("MISCONFIGURED", 1)


async def test_child_that_never_becomes_ready_stops_supervision(fork_server: ForkServer) -> None:
    tried, starts = make_child(fork_server, "version")
    with pytest.raises(FatalError) as caught:
        await tried.supervise()
    assert (caught.value.code, len(starts)) == ("KEEPS_ENDING", MAX_FIRST_STARTS)


async def test_child_that_was_ready_is_always_restarted(fork_server: ForkServer) -> None:
    tried, starts = make_child(fork_server, "worker", "--stages", "nonsense", settled=True)
    keeping = asyncio.create_task(tried.supervise())
    await eventually(lambda: len(starts) >= 3)
    assert not keeping.done()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await tried.stop()


async def test_killed_fork_server_is_started_again(fork_server: ForkServer) -> None:
    first = await fork_server.fork("first", ["version"], STDERR_FD)
    assert await first.wait() == 0
    os.kill(fork_server.pid, signal.SIGKILL)
    # A busy machine may let it answer once more.
    os.waitid(os.P_PID, fork_server.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ConnectionError):
        await fork_server.fork("lost", ["version"], STDERR_FD)
    second = await fork_server.fork("second", ["version"], STDERR_FD)
    assert await second.wait() == 0


async def test_killed_child_has_no_exit_code(fork_server: ForkServer) -> None:
    waiting = await fork_server.fork("waiting", ["worker", "--attached"], STDERR_FD)
    waiting.send_signal(signal.SIGKILL)
    assert await waiting.wait() is None
    waiting.send_signal(signal.SIGKILL)


async def test_child_ends_with_its_stdin(fork_server: ForkServer) -> None:
    waiting = await fork_server.fork("waiting", ["worker", "--attached"], STDERR_FD)
    os.close(waiting.stdin_fd)
    assert await waiting.exit_code.read() == b""
