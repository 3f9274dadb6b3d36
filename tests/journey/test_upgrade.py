"""Upgrade to a program whose chunker differs from the one that built the index."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.eventually import eventually_blocking
from tests.support.server_process import open_http_client, run_anabranch, run_up, search_snippets

NEWER_PROGRAM_VARIABLES = {
    "PYTHONPATH": str(Path(__file__).parents[1] / "newer_program"),
    "NEWER_STAGE": "chunk",
}


def test_upgraded_program_reports_outdated_index_and_reindexes(
    folder: Path, tmp_path: Path
) -> None:
    note = tmp_path / "note.md"
    note.write_text(
        "# Lighthouse\n\nThe lighthouse keeper counts ninety-seven steps every evening.\n"
    )
    with run_up(folder) as (_, server):
        assert server["outdated"] is None
        assert run_anabranch("ingest", str(note), "--data", str(folder), "--wait").returncode == 0
    with (
        run_up(folder, **NEWER_PROGRAM_VARIABLES) as (process, server),
        open_http_client(server) as http,
    ):
        assert (
            "chunk of generation g1 was built by another version" in server["outdated"]
            and "anabranch reindex" in server["outdated"]
        )
        assert "index     chunk of generation g1" in process.stdout_file.read_text()
        assert any(
            "ninety-seven" in snippet
            for snippet in search_snippets(server, "lighthouse keeper steps")
        )
        late = http.post(
            "/v1/ingest", json={"text": "The ferry leaves at a quarter past nine."}
        ).json()
        plan = run_anabranch("reindex", "--plan", "--json", "--data", str(folder))
        assert plan.returncode == 0, plan.stderr
        assert json.loads(plan.stdout)["first_changed_stage"] == "chunk"
        doctor = run_anabranch("doctor", "--json", "--data", str(folder))
        assert "GENERATION_OUTDATED" in doctor.stdout or "another version" in doctor.stdout, (
            doctor.stdout
        )
        built = run_anabranch("reindex", "--wait", "--data", str(folder))
        assert built.returncode == 0, built.stderr
        assert (
            http.get(f"/v1/ingest/status/{late['ingestion_job_id']}").json()["state"]
            != "searchable"
        )
        promoted = run_anabranch("generations", "promote", "g2", "--data", str(folder))
        assert promoted.returncode == 0, promoted.stderr
        eventually_blocking(
            lambda: search_snippets(server, "when does the ferry leave"),
            lambda snippets: any("quarter past nine" in snippet for snippet in snippets),
        )
        assert any(
            "ninety-seven" in snippet
            for snippet in search_snippets(server, "lighthouse keeper steps")
        )
    with run_up(folder, **NEWER_PROGRAM_VARIABLES) as (_, server):
        assert server["outdated"] is None
        assert any(
            "quarter past nine" in snippet
            for snippet in search_snippets(server, "when does the ferry leave")
        )
