"""Control characters are escaped before they reach a terminal.

Status of stages whose state does not follow from the tables.
"""

from __future__ import annotations

import io
import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog

from anabranch.cli.ingest_batch import IngestBatch, _render_table
from anabranch.config.settings import LoggingSettings
from anabranch.process.logs import configure_logs
from anabranch.process.terminal import escape_controls, escape_streams, get_unescaped
from schemas.errors import ConfigurationError
from sql.catalog.document_status import build_stage_lines

POSITION_FIELDS = ("topic", "partition", "offset")
REVISION: dict[str, Any] = {
    "unchanged": False,
    "state": "searchable",
    "text_topic": None,
    "parts": [],
    "dead_letters": [],
    "received_at": datetime(2026, 3, 1, 12, tzinfo=UTC),
    **{f"{prefix}_{name}": None for prefix in ("door", "log") for name in POSITION_FIELDS},
}


@pytest.mark.parametrize(
    ("has_reaction", "recorded", "state"),
    [(False, "running", "done"), (True, "running", "running"), (False, "failed", "failed")],
)
def test_claimed_stage_without_reaction_is_done(
    has_reaction: bool, recorded: str, state: str
) -> None:
    job_row = {
        "stage": "summaries",
        "state": recorded,
        "started_at": "2026-03-01T12:00:00+00:00",
        "duration_ms": None,
        "attempts": 1,
        "topic": "summarized",
        "partition": 0,
        "offset": 7,
        "error": None,
        "pages_done": None,
        "pages_total": None,
    }
    lines = build_stage_lines(REVISION | {"jobs": [job_row]}, {"summaries": has_reaction})
    assert [line["state"] for line in lines if line["stage"] == "summaries"] == [state]


HOSTILE_TEXT = "a\x1b]52;c;eA==\x07\x9b2J\u202eb\u2066\x7f\r\x85\ud800"


def test_control_characters_are_escaped() -> None:
    assert (
        escape_controls(HOSTILE_TEXT)
        == r"a\x1b]52;c;eA==\x07\u009b2J\u202eb\u2066\u007f\x0d\u0085\ud800"
    )


def test_layout_characters_and_languages_are_unchanged() -> None:
    text = (
        "tab\tline\nna\u00efve \u4f60\u597d \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 "
        "\U0001f469\u200d\U0001f680"
    )
    assert escape_controls(text) == text


def test_escaped_json_is_equivalent() -> None:
    text = json.dumps({HOSTILE_TEXT: HOSTILE_TEXT}, ensure_ascii=False)
    assert json.loads(escape_controls(text)) == json.loads(text)


def test_escaping_streams_twice_escapes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.StringIO()
    monkeypatch.setattr(sys, "stdout", raw)
    escape_streams()
    escape_streams()
    print(HOSTILE_TEXT)
    sys.stdout.writelines(["\x1b"])
    assert raw.getvalue() == escape_controls(HOSTILE_TEXT) + "\n\\x1b"
    assert get_unescaped(sys.stdout) is raw


@pytest.mark.parametrize("form", ["console", "json"])
def test_logs_contain_no_control_characters_or_forged_lines(
    form: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    raw, file = io.StringIO(), tmp_path / "up.log"
    monkeypatch.setattr(sys, "stderr", raw)
    before = logging.root.handlers[:]
    try:
        with pytest.raises(ConfigurationError, match="Cannot write"):
            configure_logs(LoggingSettings(file=tmp_path / "none/up.log"))
        configure_logs(LoggingSettings(format=form, file=file))
        structlog.get_logger("test").info("not for the file")
        hostile = HOSTILE_TEXT.removesuffix("\ud800")
        log = structlog.get_logger("test")
        log.warning(
            f"event {hostile}\n2026 forged",
            code=hostile,
            event_id=f"{hostile} with spaces\nforged",
            other=[hostile],
        )
        logging.getLogger("library").warning("%s\nforged", hostile)
        try:
            raise ValueError(hostile)
        except ValueError:
            log.exception("failed")
    finally:
        logging.root.handlers[-1].close()
        logging.root.handlers[:] = before
        structlog.reset_defaults()
    output = raw.getvalue()
    assert escape_controls(output) == output
    assert not [line for line in output.splitlines() if line.startswith(("2026 forged", "forged"))]
    assert output.count("1b]52") == 6
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["level"] for line in lines] == ["warning", "warning", "error"]
    assert lines[0]["code"] == HOSTILE_TEXT.removesuffix("\ud800")


def test_names_in_progress_table_are_not_markup() -> None:
    from rich.console import Console

    job = IngestBatch.__new__(IngestBatch)
    source = type(
        "Hostile",
        (),
        {
            "path": f"[link=evil:x]{HOSTILE_TEXT}",
            "is_finished": False,
            "stages": [],
            "state": "running",
            "error": None,
        },
    )()
    source.outcome = source.label = f"[bold]{HOSTILE_TEXT}"
    job.items = [source]
    job.is_local = False
    out = io.StringIO()
    Console(file=out, force_terminal=True, width=200).print(_render_table(job))
    assert "\x1b]" not in out.getvalue()
    assert "[link=evil:x]" in out.getvalue()
