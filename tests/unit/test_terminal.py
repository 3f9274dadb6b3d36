"""Control characters are escaped before they reach a terminal."""

from __future__ import annotations

import io
import json
import logging
import sys
from typing import Any

import pytest
import structlog

from anabranch.cli.ingest_batch import IngestBatch, _render_table
from anabranch.config.settings import LoggingSettings
from anabranch.process.logs import configure_logs
from anabranch.process.terminal import escape_controls, escape_streams, get_unescaped

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
    form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = io.StringIO()
    monkeypatch.setattr(sys, "stderr", raw)
    before = logging.root.handlers[:]
    try:
        configure_logs(LoggingSettings(format=form))
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
        logging.root.handlers[:] = before
        structlog.reset_defaults()
    output = raw.getvalue()
    assert escape_controls(output) == output
    assert not [line for line in output.splitlines() if line.startswith(("2026 forged", "forged"))]
    assert output.count("1b]52") == 6


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
    source.outcome = f"[bold]{HOSTILE_TEXT}"
    job.items = [source]
    job.is_local = False
    out = io.StringIO()
    Console(file=out, force_terminal=True, width=200).print(_render_table(job))
    assert "\x1b]" not in out.getvalue()
    assert "[link=evil:x]" in out.getvalue()
