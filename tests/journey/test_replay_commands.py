"""Dead letters and replays on the command line, with exit codes for scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.server_process import NOTE, run_anabranch, run_json, run_up


def list_items(*arguments: str) -> list[dict[str, Any]]:
    return list(run_json(*arguments)["items"])


def test_redrive_discard_and_replay_command_exit_codes(folder: Path, tmp_path: Path) -> None:
    note, broken = tmp_path / "lock.md", tmp_path / "broken.pdf"
    note.write_text(NOTE)
    broken.write_bytes(b"%PDF-1.4 but no more")
    with run_up(folder):
        here = ("--data", str(folder))
        assert (
            run_json("ingest", str(note), str(broken), "--wait", *here, expected=5)["counts"][
                "failed"
            ]
            == 1
        )
        [cause] = list_items("dlq", "list", "--by-cause", *here)
        [letter] = list_items("dlq", "list", *here)
        assert (cause["events"], cause["code"]) == (1, letter["code"]) and letter[
            "stage"
        ] == "receive"
        assert run_json("dlq", "show", letter["event_id"], *here)["remedy"]
        for listed in (("dlq", "list"), ("documents", "list", "--failed")):
            assert "broken.pdf" in run_anabranch(*listed, *here).stdout
        assert run_json("dlq", "redrive", "--all", "--dry-run", *here) == {
            "events": 1,
            "stages": {"receive": 1},
            "skipped": 0,
            "replays": [],
            "schema_version": 1,
        }
        [again] = run_json("dlq", "redrive", "--all", *here, expected=5)["replays"]
        assert (again["state"], again["dead_lettered"]) == ("done", 1)
        assert run_anabranch("dlq", "redrive", *here).returncode == 2, "it was not said which"
        assert run_anabranch("dlq", "discard", letter["event_id"], *here).returncode == 2, (
            "it was not said why"
        )
        assert (
            run_json("dlq", "discard", letter["event_id"], "--reason", "not ours", *here)["events"]
            == 1
        )
        assert (
            run_json("replay", "start", "--stage", "chunk", "--dry-run", *here)["events_chosen"]
            == 1
        )
        [done] = run_json("replay", "start", "--stage", "chunk", *here)["replays"]
        assert (done["read"], done["replayed"], done["remaining"]) == (1, 1, 0)
        assert [one["kind"] for one in list_items("replay", "list", *here)] == ["replay", "redrive"]
        unknown = run_anabranch("replay", "show", "00000000-0000-8000-8000-000000000000", *here)
        assert unknown.returncode == 3 and "`anabranch" in unknown.stderr
        assert (
            run_anabranch(
                "replay", "start", "--stage", "chunk", "--offsets", "0:1to9", *here
            ).returncode
            == 2
        )
        assert run_anabranch("dlq", "show", letter["event_id"], *here).returncode == 3, (
            "it is closed"
        )
