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


def replay(**more: Any) -> dict[str, Any]:
    return {"replay_id": ID, "stage": "receive", "read": 2, "total": 2, "replayed": 2, "superseded": 0, "buried": 0, "state": "done", "eta_s": None} | more


@pytest.mark.parametrize(("buried", "code"), [(0, 0), (1, 5)])
def test_what_failed_of_a_document_is_tried_again_by_the_document(served: Served, buried: int, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    begun = {"events": 2, "stages": {"receive": 2}, "left_out": 1, "replays": [ID]}
    asked = served({"/v1/dead-letters/redrive": begun, f"/v1/replays/{ID}": replay(buried=buried)}, ALWAYS)
    assert main(["documents", "retry", ID]) == code
    assert [(path, json.loads(body)) for path, body in asked if body] == [("/v1/dead-letters/redrive", {"document_id": ID})]
    assert [path for path, body in asked if not body] == [f"/v1/replays/{ID}"], "one call begins it, one server sees it through"
    assert "1 were left out" in capsys.readouterr().err


@pytest.mark.parametrize("rate", ["50", "50/s", "50.0"])
def test_a_rate_may_say_that_it_is_one_a_second(served: Served, rate: str) -> None:
    asked = served(
        {
            "/v1/replays": {"replay_id": ID, "stage": "chunk", "events_read": 2, "missing": [], "topic": "ocr_done"},
            f"/v1/replays/{ID}": replay(),
            "/v1/generations": {"generation": "g2"},
        },
        ALWAYS,
    )
    main(["reindex", "--events-per-second", rate])
    main(["replay", "start", "--stage", "chunk", "--rate", rate])
    assert [json.loads(body).get("events_per_second") or json.loads(body)["per_second"] for _, body in asked if body] == [50.0, 50.0]


@pytest.mark.parametrize("rate", ["0", "-1", "fast", "50/m"])
def test_what_is_no_rate_is_refused(rate: str) -> None:
    for command in (["reindex", "--events-per-second"], ["replay", "start", "--stage", "chunk", "--rate"], ["dlq", "redrive", "--all", "--rate"]):
        with pytest.raises(SystemExit) as ended:
            main([*command, rate, "--server", "http://127.0.0.1:9"])
        assert ended.value.code == 2


@pytest.mark.parametrize(("ended", "code"), [({}, 0), ({"buried": 1}, 5), ({"state": "cancelled"}, 1)])
def test_whoever_follows_a_replay_has_its_end_as_exit_code(served: Served, ended: dict[str, Any], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    served({f"/v1/replays/{ID}": replay(**ended)}, ALWAYS)
    assert main(["replay", "watch", ID, "--output", "ndjson"]) == code
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["progress"]["read"] == 2 and lines[-1]["replay_id"] == ID


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
