from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from anabranch.cli.lineage import _told_of_document, report, run_and_sentence
from anabranch.cli.options import Remote
from schemas.errors import InvalidRequest

RUN = UUID(int=7)
HOP: dict[str, Any] = {"name": "blob", "place": "blob k", "verified": True, "detail": "3 bytes", "event": None, "sha256": "ab"}


def document(**changed: Any) -> dict[str, Any]:
    return {"title": "Note", "revision": 2, "content_sha256": "ab", "hops": [HOP], "verified": True, "broken": [], **changed}


def test_a_run_may_come_with_a_sentence() -> None:
    assert run_and_sentence(str(RUN)) == (RUN, None)
    assert run_and_sentence(f"{RUN}#2") == (RUN, 2)


@pytest.mark.parametrize("text", ["seven", f"{RUN}#", f"{RUN}#two", "#2"])
def test_what_is_no_run_is_told(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is no run"):
        run_and_sentence(text)


def test_what_does_not_fit_is_told_and_exits_1(capsys: pytest.CaptureFixture[str]) -> None:
    broken = document(verified=False, broken=["blob k: its bytes have another hash"], hops=[{**HOP, "verified": False}])
    assert report(document(), False, Remote(), _told_of_document) == 0
    assert report(broken, False, Remote(), _told_of_document) == 1
    said = capsys.readouterr()
    assert "FAIL  blob" in said.out and said.err == "does not fit: blob k: its bytes have another hash\n"


def test_json_is_the_body_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(document(), False, Remote(as_json=True), _told_of_document) == 0
    assert json.loads(capsys.readouterr().out)["hops"] == [HOP]


def test_prov_is_printed_as_it_came(capsys: pytest.CaptureFixture[str]) -> None:
    assert report({"entity": {}}, True, Remote(), _told_of_document) == 0
    assert json.loads(capsys.readouterr().out) == {"entity": {}}
