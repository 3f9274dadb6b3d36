"""Commands that look after what failed, and at what generations are made of."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.cli import main
from tests.fakes.mortal_server import Served, served

__all__ = ["served"]

ID = "7d4f1c9e-0b1c-8f6e-9a51-2f0c6f7f2f11"
ALWAYS = 1000
STARTED = {"replay_id": ID, "stage": "chunk", "events_read": 2, "missing": [], "topic": "ocr_done"}
REDRIVEN = {"events": 2, "stages": {"receive": 2}, "left_out": 0, "replays": [ID]}


def replay(**more: Any) -> dict[str, Any]:
    return {"replay_id": ID, "stage": "receive", "read": 2, "total": 2, "replayed": 2, "superseded": 0, "buried": 0, "state": "done", "eta_s": None} | more


@pytest.mark.parametrize(("buried", "code"), [(0, 0), (1, 5)])
def test_what_failed_of_a_document_is_tried_again_by_the_document(served: Served, buried: int, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    asked = served({"/v1/dead-letters/redrive": {**REDRIVEN, "left_out": 1}, f"/v1/replays/{ID}": replay(buried=buried)}, ALWAYS)
    assert main(["documents", "retry", ID]) == code
    assert [(path, json.loads(body)) for path, body in asked if body] == [("/v1/dead-letters/redrive", {"document_id": ID})]
    assert [path for path, body in asked if not body] == [f"/v1/replays/{ID}"], "one call begins it, one server sees it through"
    assert "1 were left out" in capsys.readouterr().err


@pytest.mark.parametrize("rate", ["50", "50/s", "50.0"])
def test_a_rate_may_say_that_it_is_one_a_second(served: Served, rate: str) -> None:
    asked = served(
        {
            "/v1/replays": STARTED,
            f"/v1/replays/{ID}": replay(),
            "/v1/generations": {"generation": "g2"},
        },
        ALWAYS,
    )
    main(["reindex", "--events-per-second", rate])
    main(["replay", "start", "--stage", "chunk", "--rate", rate])
    assert [json.loads(body).get("events_per_second") or json.loads(body)["per_second"] for _, body in asked if body] == [50.0, 50.0]


@pytest.mark.parametrize("rate", ["0", "-1", "0.0009", "1000001", "1e400", "inf", "inf/s", "nan", "fast", "50/m"])
def test_what_is_no_rate_is_refused(rate: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["reindex", "--events-per-second"], ["replay", "start", "--stage", "chunk", "--rate"], ["dlq", "redrive", "--all", "--rate"]):
        with pytest.raises(SystemExit) as ended:
            main([*command, rate, "--server", "http://127.0.0.1:9"])
        assert ended.value.code == 2
        assert command[-1] in "".join(capsys.readouterr())


@pytest.mark.parametrize(("ended", "code"), [({}, 0), ({"buried": 1}, 5), ({"state": "cancelled"}, 1)])
def test_whoever_follows_a_replay_has_its_end_as_exit_code(served: Served, ended: dict[str, Any], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    served({f"/v1/replays/{ID}": replay(**ended)}, ALWAYS)
    assert main(["replay", "watch", ID, "--output", "ndjson"]) == code
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["progress"]["read"] == 2 and lines[-1]["replay_id"] == ID


@pytest.mark.parametrize(
    ("command", "began"),
    [
        (["replay", "start", "--stage", "chunk"], {"/v1/replays": STARTED}),
        (["dlq", "redrive", "--all"], {"/v1/dead-letters/redrive": REDRIVEN}),
    ],
    ids=["replay", "redrive"],
)
def test_whoever_waits_for_a_replay_hears_that_it_was_paused_and_how_it_goes_on(
    served: Served, command: list[str], began: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("anabranch.cli.replay.POLL_S", 0)
    ways = [replay(read=1, state=state) for state in ("running", "running", "paused", "paused", "running")]
    served({**began, f"/v1/replays/{ID}": [*ways, replay()]}, ALWAYS)
    assert main(command) == 0
    told = capsys.readouterr().err.splitlines()
    assert [line.rpartition(", ")[2] for line in told if "events read" in line] == ["running", "paused", "running", "done"]
    assert [line for line in told if f"anabranch replay resume {ID}" in line] == [told[2]]


def test_whoever_follows_a_replay_that_is_paused_waits_no_longer(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    served({f"/v1/replays/{ID}": replay(state="paused", read=1)}, ALWAYS)
    assert main(["replay", "watch", ID]) == 1
    assert f"anabranch replay resume {ID}" in capsys.readouterr().err


def test_settings_that_two_generations_do_not_share_are_told_beside_each_other(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    first = {"embed": {"model": "e5", "dimension": 384}, "chunk": {"child_tokens": 100}, "ocr": {"model": ""}}
    second = {"embed": {"model": "e5", "dimension": 64, "kind": "openai"}, "chunk": {"child_tokens": 100}}
    served({"/v1/generations/g1": {"config": first}, "/v1/generations/g2": {"config": second}}, ALWAYS)
    assert main(["generations", "diff", "g1", "g2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["generations"] == {"A": "g1", "B": "g2"}
    assert told["differences"] == {
        "embed.dimension": {"A": 384, "B": 64},
        "embed.kind": {"A": None, "B": "openai"},
        "ocr": {"A": {"model": ""}, "B": None},
    }
    assert main(["generations", "diff", "g1", "g1"]) == 0
    assert "same settings" in capsys.readouterr().err
