"""Dead letters and replays by command, with exit codes that a script can go by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.journey.served import anabranch, up
from tests.journey.test_command_line import NOTE, told


def items(*arguments: str) -> list[dict[str, Any]]:
    return list(told(*arguments)["items"])


def test_what_fails_again_ends_with_exit_code_5_and_what_is_discarded_is_gone(folder: Path, tmp_path: Path) -> None:
    note, broken = tmp_path / "lock.md", tmp_path / "broken.pdf"
    note.write_text(NOTE)
    broken.write_bytes(b"%PDF-1.4 but no more")
    with up(folder):
        here = ("--data", str(folder))
        assert told("ingest", str(note), str(broken), "--wait", *here, expected=5)["counts"]["failed"] == 1
        [cause] = items("dlq", "list", "--by-cause", *here)
        [letter] = items("dlq", "list", *here)
        assert (cause["events"], cause["code"]) == (1, letter["code"]) and letter["stage"] == "receive"
        assert told("dlq", "show", letter["event_id"], *here)["remedy"]
        for listed in (("dlq", "list"), ("documents", "list", "--failed")):
            assert "broken.pdf" in anabranch(*listed, *here).stdout
        assert told("dlq", "redrive", "--all", "--dry-run", *here) == {"events": 1, "stages": {"receive": 1}, "left_out": 0, "replays": [], "schema_version": 1}
        [again] = told("dlq", "redrive", "--all", *here, expected=5)["replays"]
        assert (again["state"], again["buried"]) == ("done", 1)
        assert anabranch("dlq", "redrive", *here).returncode == 2, "it was not said which"
        assert anabranch("dlq", "discard", letter["event_id"], *here).returncode == 2, "it was not said why"
        assert told("dlq", "discard", letter["event_id"], "--reason", "not ours", *here)["events"] == 1
        assert told("replay", "start", "--stage", "chunk", "--dry-run", *here)["events_chosen"] == 1
        [done] = told("replay", "start", "--stage", "chunk", *here)["replays"]
        assert (done["read"], done["replayed"], done["left"]) == (1, 1, 0)
        assert [one["kind"] for one in items("replay", "list", *here)] == ["replay", "redrive"]
        unknown = anabranch("replay", "show", "00000000-0000-8000-8000-000000000000", *here)
        assert unknown.returncode == 3 and "`anabranch" in unknown.stderr
        assert anabranch("replay", "start", "--stage", "chunk", "--offsets", "0:1to9", *here).returncode == 2
        assert anabranch("dlq", "show", letter["event_id"], *here).returncode == 3, "it is closed"
