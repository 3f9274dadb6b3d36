from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.server_process import STOP_TIMEOUT_S, open_http_client, run_anabranch, run_up

NOTE = "# Lighthouse\n\nThe lighthouse keeper counts ninety-seven steps every evening.\n"


def parse_sse(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    found: dict[str, Any] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line:
            found[name] = json.loads(value) if name == "data" else value
        elif found:
            yield found
            found = {}


def test_event_stream_resumes_from_last_event_id(folder: Path) -> None:
    with run_up(folder) as (first, server):
        with open_http_client(server) as http:
            with http.stream("GET", "/v1/stream") as stream:
                messages = parse_sse(stream.iter_lines())
                assert next(messages)["event"] == "open"
                receipt = http.post(
                    "/v1/ingest", json={"text": NOTE, "external_id": "lighthouse"}
                ).json()
                seen = next(messages)
                while seen["event"] != "document.accepted.v1":
                    seen = next(messages)
            with http.stream(
                "GET",
                "/v1/stream",
                params={"document": receipt["document_id"]},
                headers={"Last-Event-ID": seen["id"]},
            ) as stream:
                messages = parse_sse(stream.iter_lines())
                kinds: list[str] = []
                status: dict[str, Any] = {"state": "?"}
                while status["state"] != "searchable" or "document.indexed.v1" not in kinds:
                    message = next(messages)
                    kinds.append(message["event"])
                    status = message["data"] if message["event"] == "status" else status
                assert [kind for kind in kinds if kind.startswith("document.")][:2] == [
                    "document.transcribed.v1",
                    "document.chunked.v1",
                ]
                assert {line["stage"]: line["state"] for line in status["stages"]}[
                    "index"
                ] == "done"
                first.process.terminate()
                assert [message["event"] for message in messages][-1] == "bye"
        assert first.process.wait(STOP_TIMEOUT_S) == 0


def test_lineage_rerun_diff_and_watch_commands(folder: Path, tmp_path: Path) -> None:
    note = tmp_path / "note.md"
    note.write_text(NOTE)
    with run_up(folder):
        assert run_anabranch("ingest", str(note), "--data", str(folder), "--wait").returncode == 0
        answer = json.loads(
            run_anabranch(
                "query",
                "How many steps does the lighthouse keeper count?",
                "--data",
                str(folder),
                "--json",
            ).stdout
        )
        listed = json.loads(run_anabranch("runs", "list", "--data", str(folder), "--json").stdout)
        assert [item["run_id"] for item in listed["items"]] == [answer["run_id"]]
        walked = run_anabranch("lineage", f"{answer['run_id']}#1", "--data", str(folder))
        assert (
            walked.returncode == 0 and "raw[0]@" in walked.stdout and "FAIL" not in walked.stdout
        ), walked.stdout + walked.stderr
        again = run_anabranch("runs", "rerun", answer["run_id"], "--data", str(folder), "--json")
        made = json.loads(again.stdout)
        shown = {name: value for name, value in answer.items() if name != "schema_version"}
        assert again.returncode == 0 and made["same"] and made["response"] == shown
        compared = json.loads(
            run_anabranch("runs", "diff", answer["run_id"], "--data", str(folder), "--json").stdout
        )
        assert compared["same"] and compared["now"]["run_id"] != answer["run_id"]
        document = answer["citations"][0]["document_id"]
        assert (
            run_anabranch("documents", "lineage", document, "--data", str(folder)).returncode == 0
        )
        assert "wasDerivedFrom" in json.loads(
            run_anabranch("documents", "lineage", document, "--prov", "--data", str(folder)).stdout
        )
        completed = run_anabranch(
            "watch",
            "--document",
            document,
            "--from",
            "begin",
            "--until",
            "now",
            "--data",
            str(folder),
            "--json",
        )
        kinds = [json.loads(line)["type"] for line in completed.stdout.splitlines()]
        assert (
            kinds[0] == "document.accepted.v1"
            and "document.indexed.v1" in kinds
            and not any(kind.startswith("query") for kind in kinds)
        )
        completed = run_anabranch(
            "watch",
            "--run",
            answer["run_id"],
            "--from",
            "-1h",
            "--until",
            "now",
            "--format",
            "%y %k",
            "--data",
            str(folder),
        )
        assert completed.stdout.splitlines() == [
            f"query.{what} {answer['run_id']}" for what in ("received.v1", "answered.v2")
        ], completed.stderr
        blob = next(
            path
            for path in (folder / "blobs" / "default" / document).iterdir()
            if path.read_bytes() == note.read_bytes()
        )
        blob.write_bytes(blob.read_bytes().replace(b"97", b"98").replace(b"seven", b"eight"))
        tampered = run_anabranch("lineage", answer["run_id"], "--data", str(folder))
        assert tampered.returncode == 1 and blob.name in tampered.stderr
        assert (
            run_anabranch(
                "lineage", "00000000-0000-0000-0000-000000000001", "--data", str(folder)
            ).returncode
            == 3
        )
