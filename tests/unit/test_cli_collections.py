"""`anabranch collections`, and the profile that `query` leaves to the collection."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.cli import main
from anabranch.cli.query import QueryOptions
from tests.fakes.failing_server import ServeAnswers, serve_answers

__all__ = ["serve_answers"]

DELETION_ID = "7d4f1c9e-0b1c-8f6e-9a51-2f0c6f7f2f11"
NAME = "laws/2024 ?"
PATH = f"/v1/collections/{NAME}"
COLLECTION: dict[str, Any] = {
    "name": NAME,
    "documents": 2,
    "chunks": 3,
    "languages": ["en"],
    "default_profile": "rrf",
    "deletion": None,
}


def make_deletion(state: str) -> dict[str, Any]:
    return {"deletion_id": DELETION_ID, "state": state, "completed_at": "2026-01-02T00:00:00Z"}


def test_list_shows_default_profile(
    serve_answers: ServeAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_answers({"/v1/collections": {"items": [COLLECTION], "next": None}}, 1)
    assert main(["collections", "list"]) == 0
    assert "rrf" in capsys.readouterr().out.splitlines()[1]


@pytest.mark.parametrize(
    ("command", "profile"), [(["set-profile", NAME, "rrf"], "rrf"), (["unset-profile", NAME], None)]
)
def test_name_with_slash_and_question_mark_reaches_server(
    serve_answers: ServeAnswers, command: list[str], profile: str | None
) -> None:
    requests = serve_answers({PATH: COLLECTION}, 1)
    assert main(["collections", *command]) == 0
    assert [(path, json.loads(body)) for path, body in requests] == [
        (PATH, {"default_profile": profile})
    ]


def test_delete_waits_until_deletion_is_done(
    serve_answers: ServeAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    accepted = {"deletion_id": DELETION_ID, "status": "accepted"}
    states = [COLLECTION | {"deletion": make_deletion(state)} for state in ("running", "done")]
    requests = serve_answers({PATH: [accepted, *states]}, 3)
    assert main(["collections", "delete", NAME, "--yes", "--json"]) == 0
    assert len(requests) == 3
    printed = json.loads(capsys.readouterr().out)
    assert (printed["deletion_id"], printed["state"]) == (DELETION_ID, "done")


def test_query_names_profile_only_if_asked_to() -> None:
    assert "profile" not in QueryOptions(collection=("laws",)).to_request("Why?")
    assert QueryOptions(profile="default").to_request("Why?")["profile"] == "default"
