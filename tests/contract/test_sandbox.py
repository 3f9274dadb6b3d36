"""A sandbox recovers from whatever a job does to its process."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from engines.parse.local import LocalParser
from engines.parsed_blocks import ParsedPart
from engines.sandbox import Sandbox, SandboxLimits, decode_reply
from engines.sandbox_child import FRAME, MAX_RESULT_BYTES
from schemas.errors import (
    EngineUnavailable,
    LimitExceeded,
    PermanentError,
    TransientError,
    UnreadableDocument,
)
from tests.contract import sandbox_jobs
from tests.fakes.ocr import FakeOcr
from tests.support.eventually import eventually

MODULES = ("tests.contract.sandbox_jobs",)


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    pool = Sandbox(1, SandboxLimits(deadline_s=20, memory_bytes=300 * 2**20), MODULES)
    yield pool
    await pool.aclose()


def is_running(pid: int) -> bool:
    return (
        Path(f"/proc/{pid}/cmdline").exists()
        and b"sandbox_child" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )


async def test_each_job_runs_in_its_own_process(sandbox: Sandbox) -> None:
    assert await sandbox.run(sandbox_jobs.echo, b"abc") == b"abc"
    pids = [int(await sandbox.run(sandbox_jobs.report_pid)) for _ in range(3)]
    assert len({os.getpid(), *pids}) == 4
    assert not any(is_running(pid) for pid in pids)
    assert len(sandbox._children) == 1


async def test_patched_parser_does_not_read_the_next_document(sandbox: Sandbox) -> None:
    """A document that runs code replaces the readers and waits for the next document."""
    assert await sandbox.run(sandbox_jobs.patch_readers) == b"patched"
    assert await sandbox.run(sandbox_jobs.echo, b"of another tenant") == b"of another tenant"
    assert await sandbox.run(sandbox_jobs.read_global) == b""


async def test_job_cannot_reach_the_child_that_forks_it(sandbox: Sandbox) -> None:
    """The child's memory and the socket by which it names processes to the parent."""
    for attack in (sandbox_jobs.write_parent_memory, sandbox_jobs.list_parent_descriptors):
        with pytest.raises(UnreadableDocument) as caught:
            await sandbox.run(attack)
        assert "PermissionError" in caught.value.detail
    assert await sandbox.run(sandbox_jobs.count_sockets) == b"1"


async def test_job_that_kills_its_child_affects_no_other_job(sandbox: Sandbox) -> None:
    with suppress(TransientError, UnreadableDocument):  # Landlock refuses since Linux 6.12
        await sandbox.run(sandbox_jobs.kill_parent)
    assert await sandbox.run(sandbox_jobs.echo, b"next") == b"next"


def count_own_memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("kind", "size"), [(b"r", 2**60), (b"r", 2**31), (b"e", 2**20), (b"x", 2**20), (b"?", 2**40)]
)
async def test_endless_reply_is_refused_at_its_announcement(
    sandbox: Sandbox, kind: bytes, size: int
) -> None:
    before = count_own_memory()
    with pytest.raises(UnreadableDocument) as caught:
        await sandbox.run(sandbox_jobs.send_frame, kind, size, b"x" * 2**20)
    assert caught.value.code == "PARSER_CRASHED"
    assert count_own_memory() - before < 32 * 2**20
    assert await sandbox.run(sandbox_jobs.echo, b"next") == b"next"


FORGED_REPLIES = (
    b'["FatalError","stop","STOP","now"]',
    b'["schemas.errors","FatalError","stop","STOP","now"]',
    b'["ConfigurationError","stop","STOP","now"]',
    b'["EngineUnavailable","away","ENGINE_UNAVAILABLE","wait"]',
    b'["TransientError","again","TRY_AGAIN","again"]',
    b'["KeyLost","lost","KEY_LOST","none"]',
    b'["__class__","x","X","x"]',
    b'["UnreadableDocument","x","not a code","x"]',
    b'["UnreadableDocument","x",1,"x"]',
    b'["UnreadableDocument"]',
    b"[1]",
    b"{}",
    b"null",
    b"",
    b"\xff\xfe",
    b"[" * 60_000,
)


@pytest.mark.parametrize("kind", [b"e", b"x", b"?", b"+"])
async def test_forged_reply_is_a_crash_of_its_document(
    sandbox: Sandbox, kind: bytes, record_property: Callable[[str, object], None]
) -> None:
    record_property("attempts", len(FORGED_REPLIES))
    for body in FORGED_REPLIES:
        with pytest.raises(UnreadableDocument) as caught:
            await sandbox.run(sandbox_jobs.send_frame, kind, len(body), body)
        assert (type(caught.value), caught.value.code) == (UnreadableDocument, "PARSER_CRASHED")
        assert len(caught.value.detail) < 1_000
    assert len(sandbox._children) == 1


async def test_second_reply_does_not_reach_the_next_job(sandbox: Sandbox) -> None:
    frame = FRAME.pack(b"r", 6) + b"forged"
    assert await sandbox.run(sandbox_jobs.send_frame, b"r", 5, b"first" + frame) == b"first"
    assert await sandbox.run(sandbox_jobs.echo, b"next") == b"next"


async def test_process_that_closes_its_socket_and_stays_is_ended(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engines.sandbox._EXIT_TIMEOUT_S", 0.3)
    with pytest.raises(UnreadableDocument) as caught:
        await sandbox.run(sandbox_jobs.close_socket_and_hang)
    assert caught.value.code == "PARSER_CRASHED"
    assert await sandbox.run(sandbox_jobs.echo, b"next") == b"next"


async def test_too_large_result_is_a_limit_of_its_document(sandbox: Sandbox) -> None:
    with pytest.raises(LimitExceeded) as caught:
        await sandbox.run(sandbox_jobs.make_result, MAX_RESULT_BYTES + 1)
    assert caught.value.code in ("TOO_MUCH_TEXT", "MEMORY_EXCEEDED")


PART = (
    b'{"blocks":[%s],"title":null,"language":null,"document_date":null,"ocr_pages":[],"unread":[]}'
)
FORGED_PARTS = (
    b"[" * 100_000,
    b"null",
    b"[1]",
    b"{",
    b"",
    PART.replace(b'"title":null', b'"title":[]') % b"",
    PART.replace(b'"unread":[]', b'"unread":["all"]') % b"",
    PART % b'{"kind":"paragraph","text":5}',
    PART % b'{"kind":"__class__","text":"x"}',
    PART % b'{"kind":"paragraph"}',
    PART % b'{"kind":"paragraph","text":"x","box":[1,2]}',
)


@pytest.mark.parametrize("part", FORGED_PARTS)
def test_forged_part_is_a_crash_of_its_document(part: bytes) -> None:
    with pytest.raises(UnreadableDocument) as caught:
        decode_reply(ParsedPart.decode, part, "a.pdf")
    assert caught.value.code == "PARSER_CRASHED"


async def test_warm_child_has_a_single_thread() -> None:
    """A fork copies one thread only: the locks of the others would stay held."""
    parser = LocalParser(FakeOcr())
    await parser.warm()
    (child,) = parser._sandbox._children
    assert len(list(Path(f"/proc/{child.process.pid}/task").iterdir())) == 1
    await parser.aclose()


@pytest.mark.parametrize(
    ("job", "arguments", "kind", "code"),
    [
        (sandbox_jobs.hang, (), LimitExceeded, "DEADLINE_EXCEEDED"),
        (sandbox_jobs.allocate, (2**31,), LimitExceeded, "MEMORY_EXCEEDED"),
        (sandbox_jobs.segfault, (), UnreadableDocument, "PARSER_CRASHED"),
        (sandbox_jobs.raise_unexpected, (), UnreadableDocument, "PARSER_CRASHED"),
        (sandbox_jobs.raise_unreadable, (), UnreadableDocument, "TORN"),
    ],
)
async def test_failing_job_does_not_affect_next_job(
    sandbox: Sandbox,
    job: Callable[..., bytes],
    arguments: tuple[object, ...],
    kind: type[PermanentError],
    code: str,
) -> None:
    with pytest.raises(kind) as caught:
        await sandbox.run(
            job, *arguments, subject="a.pdf", deadline_s=0.2 if job is sandbox_jobs.hang else None
        )
    assert caught.value.code == code
    assert caught.value.remedy
    assert await sandbox.run(sandbox_jobs.echo, b"next") == b"next"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_externally_killed_child_is_a_transient_error(
    sandbox: Sandbox, how: signal.Signals
) -> None:
    with pytest.raises(TransientError) as caught:
        await sandbox.run(sandbox_jobs.kill_self, int(how), subject="a.pdf")
    assert (caught.value.code, caught.value.detail) == (
        "PARSER_CRASHED",
        "The parser crashed on a.pdf: the child process was killed",
    )
    assert await sandbox.run(sandbox_jobs.echo, b"next") == b"next"


async def test_memory_limit_is_enforced_while_running() -> None:
    pool = Sandbox(1, SandboxLimits(deadline_s=60, memory_bytes=8 * 2**20), MODULES)
    with pytest.raises(LimitExceeded) as caught:
        await pool.run(sandbox_jobs.hang)
    await pool.aclose()
    assert caught.value.code == "MEMORY_EXCEEDED"


async def test_job_output_does_not_corrupt_result(sandbox: Sandbox) -> None:
    assert await sandbox.run(sandbox_jobs.print_much) == b"done"


async def test_child_environment_has_no_secrets(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_CHAT__API_KEY", "secret")
    assert await sandbox.run(sandbox_jobs.read_environment, "ANABRANCH_CHAT__API_KEY") == b""


async def test_cancelled_job_ends_its_child(sandbox: Sandbox) -> None:
    await sandbox.warm()
    (child,) = sandbox._children
    children = Path(f"/proc/{child.process.pid}/task/{child.process.pid}/children")
    for delay_s in (0, 0.02, 0.3):
        job = asyncio.ensure_future(sandbox.run(sandbox_jobs.hang))
        await asyncio.sleep(delay_s)
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        # The parent of the child notices its end a moment later.
        await eventually(lambda: not children.exists() or not children.read_text().split())
    assert await sandbox.run(sandbox_jobs.echo, b"next") == b"next"


async def test_start_cancelled_at_any_await_leaves_nothing_open() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for awaits in range(12):
            pool = Sandbox(1, modules=MODULES)
            job = asyncio.ensure_future(pool.run(sandbox_jobs.echo, b"abc"))
            for _ in range(awaits):
                await asyncio.sleep(0)
            job.cancel()
            with pytest.raises(asyncio.CancelledError):
                await job
            await pool.aclose()
            gc.collect()
    assert [str(warning.message) for warning in caught] == []


async def test_jobs_run_concurrently_and_close_ends_children() -> None:
    pool = Sandbox(2, modules=MODULES)
    pids = [
        int(pid)
        for pid in await asyncio.gather(*(pool.run(sandbox_jobs.report_pid) for _ in range(6)))
    ]
    assert len(set(pids)) == 6 and len(pool._children) == 2
    await pool.aclose()
    assert not any(is_running(pid) for pid in pids)


async def test_close_during_job_raises_engine_unavailable() -> None:
    pool = Sandbox(1, modules=MODULES)
    await pool.warm()
    job = asyncio.ensure_future(pool.run(sandbox_jobs.hang))
    await asyncio.sleep(0)
    await pool.aclose()
    with pytest.raises(EngineUnavailable):
        await job
