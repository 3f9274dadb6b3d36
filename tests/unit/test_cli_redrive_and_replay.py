"""Commands for failed documents, replays and comparing generations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.cli import main
from tests.fakes.failing_server import ServeAnswers, serve_answers

__all__ = ["serve_answers"]

REPLAY_ID = "7d4f1c9e-0b1c-8f6e-9a51-2f0c6f7f2f11"
UNLIMITED_REQUESTS = 1000
REPLAY_STARTED = {
    "replay_id": REPLAY_ID,
    "stage": "chunk",
    "events_read": 2,
    "missing": [],
    "topic": "ocr_done",
}
REDRIVE_STARTED = {"events": 2, "stages": {"receive": 2}, "skipped": 0, "replays": [REPLAY_ID]}


def make_replay_status(**more: Any) -> dict[str, Any]:
    return {
        "replay_id": REPLAY_ID,
        "stage": "receive",
        "read": 2,
        "total": 2,
        "replayed": 2,
        "superseded": 0,
        "dead_lettered": 0,
        "state": "done",
        "eta_s": None,
    } | more


@pytest.mark.parametrize(("dead_lettered", "code"), [(0, 0), (1, 5)])
def test_documents_retry_redrives_dead_letters_of_the_document(
    serve_answers: ServeAnswers, dead_lettered: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = serve_answers(
        {
            "/v1/dead-letters/redrive": {**REDRIVE_STARTED, "skipped": 1},
            f"/v1/replays/{REPLAY_ID}": make_replay_status(dead_lettered=dead_lettered),
        },
        UNLIMITED_REQUESTS,
    )
    assert main(["documents", "retry", REPLAY_ID]) == code
    assert [(path, json.loads(body)) for path, body in requests if body] == [
        ("/v1/dead-letters/redrive", {"document_id": REPLAY_ID})
    ]
    assert [path for path, body in requests if not body] == [f"/v1/replays/{REPLAY_ID}"], (
        "one call starts the replay, and the same server is polled"
    )
    assert "1 were skipped" in capsys.readouterr().err


@pytest.mark.parametrize("rate", ["50", "50/s", "50.0"])
def test_rate_accepts_per_second_suffix(serve_answers: ServeAnswers, rate: str) -> None:
    requests = serve_answers(
        {
            "/v1/replays": REPLAY_STARTED,
            f"/v1/replays/{REPLAY_ID}": make_replay_status(),
            "/v1/generations": {"generation": "g2"},
        },
        UNLIMITED_REQUESTS,
    )
    main(["reindex", "--events-per-second", rate])
    main(["replay", "start", "--stage", "chunk", "--rate", rate])
    assert [
        json.loads(body).get("events_per_second") or json.loads(body)["per_second"]
        for _, body in requests
        if body
    ] == [50.0, 50.0]


@pytest.mark.parametrize(
    "rate", ["0", "-1", "0.0009", "1000001", "1e400", "inf", "inf/s", "nan", "fast", "50/m"]
)
def test_invalid_rate_is_rejected(rate: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (
        ["reindex", "--events-per-second"],
        ["replay", "start", "--stage", "chunk", "--rate"],
        ["dlq", "redrive", "--all", "--rate"],
    ):
        with pytest.raises(SystemExit) as ended:
            main([*command, rate, "--server", "http://127.0.0.1:9"])
        assert ended.value.code == 2
        assert command[-1] in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("ended", "code"), [({}, 0), ({"dead_lettered": 1}, 5), ({"state": "cancelled"}, 1)]
)
def test_replay_watch_exit_code_reflects_outcome(
    serve_answers: ServeAnswers,
    ended: dict[str, Any],
    code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    serve_answers({f"/v1/replays/{REPLAY_ID}": make_replay_status(**ended)}, UNLIMITED_REQUESTS)
    assert main(["replay", "watch", REPLAY_ID, "--output", "ndjson"]) == code
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["progress"]["read"] == 2 and lines[-1]["replay_id"] == REPLAY_ID


@pytest.mark.parametrize(
    ("command", "began"),
    [
        (["replay", "start", "--stage", "chunk"], {"/v1/replays": REPLAY_STARTED}),
        (["dlq", "redrive", "--all"], {"/v1/dead-letters/redrive": REDRIVE_STARTED}),
    ],
    ids=["replay", "redrive"],
)
def test_waiting_command_reports_paused_replay_and_resume_command(
    serve_answers: ServeAnswers,
    command: list[str],
    began: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("anabranch.cli.replay.POLL_S", 0)
    ways = [
        make_replay_status(read=1, state=state)
        for state in ("running", "running", "paused", "paused", "running")
    ]
    serve_answers(
        {**began, f"/v1/replays/{REPLAY_ID}": [*ways, make_replay_status()]}, UNLIMITED_REQUESTS
    )
    assert main(command) == 0
    stderr_lines = capsys.readouterr().err.splitlines()
    assert [line.rpartition(", ")[2] for line in stderr_lines if "events read" in line] == [
        "running",
        "paused",
        "running",
        "done",
    ]
    assert [line for line in stderr_lines if f"anabranch replay resume {REPLAY_ID}" in line] == [
        stderr_lines[2]
    ]


def test_replay_watch_stops_on_paused_replay(
    serve_answers: ServeAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_answers(
        {f"/v1/replays/{REPLAY_ID}": make_replay_status(state="paused", read=1)}, UNLIMITED_REQUESTS
    )
    assert main(["replay", "watch", REPLAY_ID]) == 1
    assert f"anabranch replay resume {REPLAY_ID}" in capsys.readouterr().err


def test_generations_diff_lists_differing_settings(
    serve_answers: ServeAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    first = {
        "embed": {"model": "e5", "dimension": 384},
        "chunk": {"child_tokens": 100},
        "ocr": {"model": ""},
    }
    second = {
        "embed": {"model": "e5", "dimension": 64, "kind": "openai"},
        "chunk": {"child_tokens": 100},
    }
    serve_answers(
        {"/v1/generations/g1": {"config": first}, "/v1/generations/g2": {"config": second}},
        UNLIMITED_REQUESTS,
    )
    assert main(["generations", "diff", "g1", "g2", "--json"]) == 0
    diff = json.loads(capsys.readouterr().out)
    assert diff["generations"] == {"A": "g1", "B": "g2"}
    assert diff["differences"] == {
        "embed.dimension": {"A": 384, "B": 64},
        "embed.kind": {"A": None, "B": "openai"},
        "ocr": {"A": {"model": ""}, "B": None},
    }
    assert main(["generations", "diff", "g1", "g1"]) == 0
    assert "same settings" in capsys.readouterr().err
