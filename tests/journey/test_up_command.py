from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import pytest

from anabranch.process.database import POSTGRES_FOLDER
from sql.embedded.server import EmbeddedPostgres
from tests.support.eventually import eventually_blocking
from tests.support.server_process import (
    UpProcess,
    list_descendants,
    open_http_client,
    run_anabranch,
    run_json,
    run_up,
    search_snippets,
)

SharedServer = tuple[UpProcess, dict[str, Any], Path]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    """A server for the tests that leave it running, with its data folder."""
    folder = tmp_path_factory.mktemp("shared") / "data"
    with run_up(folder) as (process, server):
        yield process, server, folder


def test_documents_survive_restart_of_up_with_the_same_settings(
    folder: Path, tmp_path: Path
) -> None:
    note = tmp_path / "note.md"
    note.write_text(
        "# Lighthouse\n\nThe lighthouse keeper counts ninety-seven steps every evening.\n"
    )
    with run_up(folder) as (first, server):
        assert {
            "url",
            "database_url",
            "mode",
            "log",
            "pid",
            "data_dir",
            "persistent",
        } <= server.keys()
        assert (server["mode"], server["log"], server["persistent"], server["pid"]) == (
            "embedded",
            "postgres",
            True,
            first.process.pid,
        )
        with open_http_client(server) as http:
            assert http.get("/readyz").status_code == 200
        done = run_anabranch("ingest", str(note), "--data", str(folder), "--wait", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["counts"] == {"searchable": 1, "failed": 0, "duplicate": 0}
        answer = run_anabranch(
            "query",
            "How many steps does the lighthouse keeper count?",
            "--data",
            str(folder),
            "--json",
        )
        assert answer.returncode == 0, answer.stderr + answer.stdout
        assert "ninety-seven" in json.loads(answer.stdout)["answer"]
        refused = run_anabranch(
            "query", "What is the boiling point of tungsten in kelvin?", "--data", str(folder)
        )
        assert refused.returncode == 4, refused.stdout
        assert first.stop() == 130
    other_index = ("--port", "0", "--set", "chunk.child_tokens=100")
    mismatched = run_anabranch("up", "--data", str(folder), *other_index)
    assert mismatched.returncode == 2
    assert "chunk.child_tokens" in mismatched.stderr and "--data" in mismatched.stderr
    with run_up(folder) as (_, server):
        assert any(
            "ninety-seven" in snippet
            for snippet in search_snippets(server, "lighthouse keeper steps")
        )


def test_questions_have_priority_over_ingest(shared: SharedServer) -> None:
    first, _, folder = shared
    own = os.getpriority(os.PRIO_PROCESS, 0)
    priorities = {
        Path(f"/proc/{pid}/comm").read_text().strip(): os.getpriority(os.PRIO_PROCESS, pid)
        for pid in list_descendants(first.process.pid)
        if is_api_or_worker(pid)
    }
    assert priorities == {"anabranch-api": own, "anabranch-worke": min(own + 5, 19)}
    backends = fetch_backends(EmbeddedPostgres(folder / POSTGRES_FOLDER).superuser_dsn)
    for name, expected in (("anabranch api", own), ("anabranch worker", min(own + 5, 19))):
        assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in backends[name]} == {expected}


def fetch_backends(dsn: str) -> dict[str, list[int]]:
    """Return the process ids of the connections by their names."""

    async def fetch() -> dict[str, list[int]]:
        connection = await asyncpg.connect(dsn)
        try:
            rows = await connection.fetch(
                "select application_name as name, array_agg(pid) as pids from pg_stat_activity "
                "where backend_type = 'client backend' group by 1"
            )
        finally:
            await connection.close()
        return {row["name"]: row["pids"] for row in rows}

    return asyncio.run(fetch())


def test_second_up_in_same_folder_exits_with_2(shared: SharedServer) -> None:
    _, _, folder = shared
    done = run_anabranch("up", "--data", str(folder), "--port", "0")
    assert done.returncode == 2
    assert "in use" in done.stderr


def test_sigkill_loses_no_acknowledged_upload(folder: Path) -> None:
    with run_up(folder) as (first, server), open_http_client(server) as http:
        texts = [
            f"Fact number {number}: the river gauge {number} stands at Weir {number * 13}."
            for number in range(8)
        ]
        for text in texts:
            assert http.post("/v1/ingest", json={"text": text}).status_code == 202
        first.process.kill()
        first.process.wait()
    with run_up(folder) as (_, server), open_http_client(server) as http:
        listed = eventually_blocking(
            lambda: http.get("/v1/documents", params={"state": "searchable"}).json()["items"],
            lambda items: len(items) >= len(texts),
        )
        assert len(listed) == len(texts)


def read_parent(pid: int) -> int:
    # After the name, which may contain spaces: the state, and the parent's id (proc(5)).
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_api_or_worker(pid: int) -> bool:
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):  # it has ended since it was listed
        return False
    # Linux cuts the name of a process at 15 characters.
    return name in ("anabranch-api", "anabranch-worke")


@pytest.mark.parametrize("with_fork_server", [False, True])
def test_killed_worker_and_api_are_restarted(shared: SharedServer, with_fork_server: bool) -> None:
    first, server, _ = shared
    with open_http_client(server) as http:
        # A test before this one may have killed them too.
        killed = eventually_blocking(
            lambda: [pid for pid in list_descendants(first.process.pid) if is_api_or_worker(pid)],
            lambda found: len(found) == 2,
        )
        if with_fork_server:
            killed.append(read_parent(killed[0]))
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        text = f"It came back{' with its fork server' * with_fork_server}."
        receipt: dict[str, Any] = {}

        def ingest_and_fetch_state() -> str | None:
            """Return the state of the document's job, None while the API is down."""
            nonlocal receipt
            try:
                receipt = receipt or http.post("/v1/ingest", json={"text": text}).json()
                status = http.get(f"/v1/ingest/status/{receipt['ingestion_job_id']}").json()
            except httpx2.HTTPError:
                return None
            return status.get("state")

        eventually_blocking(ingest_and_fetch_state, lambda state: state == "searchable")
        assert first.process.poll() is None
    # For `doctor --bundle`: the terminal may be gone.
    log = (Path(server["data_dir"]) / "up.log").read_text()
    lines = [json.loads(line) for line in log.splitlines()]
    restarted = {line["process"] for line in lines if line["event"] == "process_restarted"}
    assert restarted == {"api", "worker"}
    assert {line["level"] for line in lines} <= {"warning", "error"}
    starts = 1 + sum(
        (line["event"], line.get("process")) == ("process_restarted", "api") for line in lines
    )
    warnings = [line for line in lines if line["event"] == "python_release_has_known_faults"]
    assert len(warnings) <= starts, "the worker does not repeat it"


def test_killed_postgres_is_restarted_at_same_address(shared: SharedServer) -> None:
    first, server, folder = shared
    with open_http_client(server) as http:
        assert (
            http.post("/v1/ingest", json={"text": "Before the fall: the weir holds."}).status_code
            == 202
        )
        os.kill(
            int(
                (EmbeddedPostgres(folder / POSTGRES_FOLDER).data / "postmaster.pid")
                .read_text()
                .split()[0]
            ),
            signal.SIGKILL,
        )
        eventually_blocking(
            lambda: _search_snippets_or_empty(server, "the weir holds"),
            lambda snippets: any("weir" in snippet for snippet in snippets),
        )
        assert first.process.poll() is None


def _search_snippets_or_empty(server: dict[str, Any], words: str) -> list[str]:
    try:
        return search_snippets(server, words)
    except (httpx2.HTTPError, KeyError):
        return []


def test_ephemeral_server_deletes_its_data(tmp_path: Path) -> None:
    with run_up(tmp_path / "unused", "--ephemeral") as (first, server):
        place = Path(server["data_dir"])
        assert place.exists()
        assert server["persistent"] is False
        first.stop()
        assert not place.exists()
        assert not (tmp_path / "unused").exists()


def test_command_without_server_starts_temporary_one(folder: Path, tmp_path: Path) -> None:
    here, notes = ("--data", str(folder)), [tmp_path / "ferry.md", tmp_path / "weir.md"]
    notes[0].write_text("The annual ferry to the island leaves on the ninth of June.")
    notes[1].write_text("The annual feast of the island is at the weir.")
    done = run_json("ingest", *map(str, notes), "--wait", *here)
    ferry = next(one for one in done["documents"] if "ferry" in json.dumps(one))
    assert not EmbeddedPostgres(folder / POSTGRES_FOLDER).is_running
    deleted = run_anabranch("documents", "delete", ferry["document_id"], "--yes", *here)
    assert deleted.returncode == 0, deleted.stderr
    [found] = run_json("search", "annual ferry feast of the island", *here)["results"]
    assert "weir" in found["snippet"], "what was accepted is done before its server stops"
