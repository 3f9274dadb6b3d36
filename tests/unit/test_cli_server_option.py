"""A command uses the named server or refuses it, and never falls back to another installation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from anabranch.cli import main
from tests.fakes.asgi_server import run_asgi_app

LOCAL_COMMANDS = [
    *(("topics", name) for name in ("verify", "create", "acls")),
    *(("db", name) for name in ("migrate", "status", "checksum", "check")),
    ("config", "show"),
    ("down",),
    ("eval", "retrieval", "here"),
    ("eval", "documents", "here"),
]


@pytest.mark.parametrize("command", LOCAL_COMMANDS, ids=" ".join)
def test_local_command_refuses_server_option(
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANABRANCH_SERVER", "http://elsewhere:8420")
    assert main(list(command)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "ANABRANCH_SERVER is http://elsewhere:8420. [NOT_OVER_HTTP]" in captured.err
    assert "env -u ANABRANCH_SERVER" in captured.err
    monkeypatch.delenv("ANABRANCH_SERVER")
    assert main([*command, "--server", "http://elsewhere:8420"]) == 2
    assert "[NOT_OVER_HTTP]" in capsys.readouterr().err


def test_doctor_and_config_query_the_named_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = {
        "type": "workflow",
        "name": "theirs",
        "profiles": {"fusion": "rrf"},
    }
    answers: dict[str, Any] = {
        "/v1/profiles": {"items": [profile]},
        "/v1/config/schema": {"settings": {"theirs": 1}},
        "/readyz": {
            "dependencies": {"log": {"ok": False, "detail": "Kafka is down", "remedy": "Start it."}}
        },
    }
    app = FastAPI()
    app.get("/{path:path}")(lambda path: answers[f"/{path}"])
    with run_asgi_app(app) as url:
        monkeypatch.setenv("ANABRANCH_SERVER", url)
        assert main(["config", "profiles"]) == 0
        assert "theirs" in capsys.readouterr().out
        assert main(["config", "schema"]) == 0
        assert json.loads(capsys.readouterr().out)["settings"] == {"theirs": 1}
        assert main(["doctor"]) == 1
        assert "FAIL  server: log: Kafka is down" in capsys.readouterr().out


@pytest.mark.parametrize("command", [("doctor",), ("search", "x"), ("config", "profiles")])
def test_server_url_without_scheme_is_reported(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--server", "127.0.0.1:9"]) in (1, 2)
    output = "".join(capsys.readouterr())
    assert (
        "Use --server http://127.0.0.1:9." in output
        or "Use https://HOST or http://HOST:PORT." in output
    )


def test_local_command_error_does_not_mention_server_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topics", "list", "--data", str(tmp_path / "none")]) == 3
    assert "--server" not in capsys.readouterr().err
