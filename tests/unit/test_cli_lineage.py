from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from anabranch.cli.lineage import _format_document, parse_run_and_sentence, print_lineage
from anabranch.cli.options import RemoteOptions
from schemas.errors import InvalidRequest

RUN_ID = UUID(int=7)
HOP: dict[str, Any] = {
    "name": "blob",
    "place": "blob k",
    "verified": True,
    "detail": "3 bytes",
    "event": None,
    "sha256": "ab",
}


def make_document_lineage(**changed: Any) -> dict[str, Any]:
    return {
        "title": "Note",
        "revision": 2,
        "content_sha256": "ab",
        "hops": [HOP],
        "verified": True,
        "broken": [],
        **changed,
    }


def test_run_argument_accepts_sentence_number() -> None:
    assert parse_run_and_sentence(str(RUN_ID)) == (str(RUN_ID), None)
    assert parse_run_and_sentence(f"{RUN_ID}#2") == (str(RUN_ID), 2)


@pytest.mark.parametrize("text", [f"{RUN_ID}#", f"{RUN_ID}#two", "#2"])
def test_invalid_run_argument_is_rejected(text: str) -> None:
    with pytest.raises(InvalidRequest, match="Invalid run"):
        parse_run_and_sentence(text)


def test_broken_lineage_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    broken = make_document_lineage(
        verified=False,
        broken=["blob k: its bytes have another hash"],
        hops=[{**HOP, "verified": False}],
    )
    assert print_lineage(make_document_lineage(), False, RemoteOptions(), _format_document) == 0
    assert print_lineage(broken, False, RemoteOptions(), _format_document) == 1
    captured = capsys.readouterr()
    assert (
        "FAIL  blob" in captured.out
        and captured.err == "verification failed: blob k: its bytes have another hash\n"
    )


def test_lineage_json_is_the_response_body(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        print_lineage(make_document_lineage(), False, RemoteOptions(as_json=True), _format_document)
        == 0
    )
    assert json.loads(capsys.readouterr().out)["hops"] == [HOP]


def test_prov_output_is_printed_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_lineage({"entity": {}}, True, RemoteOptions(), _format_document) == 0
    assert json.loads(capsys.readouterr().out) == {"entity": {}}
