"""Documents and runs by their names, their lineage, and golden questions."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from anabranch.cli import main
from anabranch.cli.http_client import ApiClient
from anabranch.cli.names import (
    DOCUMENTS,
    QUESTIONS,
    RUNS,
    NamedResource,
    call_with_id,
    find_id,
)
from anabranch.cli.options import RemoteOptions
from anabranch.cli.runs import _format_document, parse_run_and_sentence, print_lineage
from schemas.errors import AnabranchError, InvalidRequest, NotFound
from schemas.ids import find_id_range
from tests.fakes.failing_server import ServeAnswers, serve_answers

LEASE = {
    "document_id": "7d4f1c9e-0b1c-8f6e-9a51-2f0c6f7f2f11",
    "external_id": "lease-1",
    "title": "Lease of the mill",
    "filename": "lease.pdf",
}
RENEWED_LEASE = LEASE | {
    "document_id": "7d4f2222-0b1c-8f6e-9a51-2f0c6f7f2f11",
    "external_id": "9a51ffff-0000-4000-8000-000000000001",
    "filename": "renewed.pdf",
}
SAVED = {"question_id": "beef1c9e-0b1c-4f6e-9a51-2f0c6f7f2f11", "request": {"query": "How far?"}}
RUN = {"run_id": "abcd1c9e-0b1c-4f6e-9a51-2f0c6f7f2f11", "query": "Where is the mill?"}


OTHER = {"question_id": str(UUID(int=7)), "request": {"query": "How long is it?"}}
FIRST_PAGE = {"items": [OTHER], "next": "more"}


@dataclass
class ListClient:
    """Answers lists as the API does."""

    documents: list[dict[str, Any]] = field(default_factory=lambda: [LEASE, RENEWED_LEASE])
    next: str | None = None

    async def get(self, path: str, **parameters: Any) -> dict[str, Any]:
        if path == QUESTIONS.path:  # the second page
            return {"items": [SAVED], "next": None} if "after" in parameters else FIRST_PAGE
        if path == RUNS.path:
            return {"items": [item for item in [RUN] if has_prefix(item, parameters)], "next": None}
        items = [item for item in self.documents if matches(item, parameters)]
        return {"items": items, "next": self.next}


def has_prefix(item: dict[str, Any], parameters: dict[str, Any]) -> bool:
    return "id_prefix" not in parameters or item["run_id"].startswith(parameters["id_prefix"])


def matches(item: dict[str, Any], parameters: dict[str, Any]) -> bool:
    names = [item["external_id"], item["title"], item["filename"]]
    if text := parameters.get("text"):
        return any(text.lower() in name.lower() for name in names)
    if name := parameters.get("name"):
        first, last = find_id_range(name)
        in_range = first and last and first <= UUID(item["document_id"]) <= last
        return name in names or bool(in_range)
    return True


async def find(name: str, resource: NamedResource = DOCUMENTS, **options: Any) -> str:
    client = cast("ApiClient", options.pop("client", ListClient()))
    return await find_id(client, resource, name, **options)


async def fail_to_find(name: str, error: type[AnabranchError], **options: Any) -> AnabranchError:
    with pytest.raises(error) as raised:
        await find(name, **options)
    return raised.value


@pytest.mark.parametrize(
    ("name", "document"),
    [
        (LEASE["document_id"].upper(), LEASE),
        ("7d4f1", LEASE),
        ("7D4F1C9E-0B", LEASE),
        ("7d4f2222", RENEWED_LEASE),
        ("lease-1", LEASE),
        ("renewed.pdf", RENEWED_LEASE),
    ],
)
async def test_document_is_found_by_id_prefix_or_name(name: str, document: dict[str, Any]) -> None:
    assert await find(name) == document["document_id"]


async def test_run_is_found_by_first_digits_of_its_id() -> None:
    assert await find("abcd", RUNS) == RUN["run_id"]
    assert RUN["query"] in (await fail_to_find("mill", NotFound, resource=RUNS)).remedy


@pytest.mark.parametrize("name", ["BEEF1", "beef1c9e-0b", "How far?"])
async def test_saved_question_is_found_by_first_digits_or_text(name: str) -> None:
    assert await find(name, QUESTIONS) == SAVED["question_id"]


@pytest.mark.parametrize(
    ("name", "remedy"), [("how long", str(UUID(int=7))), ("zzz", "questions list"), ("bee", "4")]
)
async def test_unknown_question_suggests_similar_ones(name: str, remedy: str) -> None:
    assert remedy in (await fail_to_find(name, NotFound, resource=QUESTIONS)).remedy


@pytest.mark.parametrize("name", ["7d4f", "Lease of the mill"])
async def test_ambiguous_name_lists_its_candidates(name: str) -> None:
    error = await fail_to_find(name, InvalidRequest)
    assert error.code == "AMBIGUOUS_NAME"
    assert LEASE["document_id"] in error.remedy and RENEWED_LEASE["document_id"] in error.remedy


async def test_name_with_more_matches_than_a_page_is_ambiguous() -> None:
    client = ListClient([LEASE], next="more")
    assert (await fail_to_find("lease-1", InvalidRequest, client=client)).code == "AMBIGUOUS_NAME"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        *(
            (name, RENEWED_LEASE["document_id"])
            for name in ("renewed", "RENEWED.PDF", "renewd.pdf")
        ),
        ("zzzzzz", "documents list"),
    ],
)
async def test_unknown_name_suggests_similar_documents_or_the_list(name: str, remedy: str) -> None:
    assert remedy in (await fail_to_find(name, NotFound)).remedy


async def test_exact_name_wins_over_first_digits_of_an_id() -> None:
    named = RENEWED_LEASE | {"external_id": "7d4f1c9e"}
    client = ListClient([LEASE, named])
    assert await find("7d4f1c9e", client=client) == named["document_id"]


async def test_deletion_takes_no_first_digits_of_an_id() -> None:
    assert (await fail_to_find("7d4f1", InvalidRequest, is_exact=True)).code == "NOT_EXACT"
    assert await find("lease-1", is_exact=True) == LEASE["document_id"]


async def test_external_id_may_have_the_form_of_an_id() -> None:
    async def fetch(client: ApiClient, document_id: str) -> str:
        if document_id != RENEWED_LEASE["document_id"]:
            raise NotFound(f"Unknown document {document_id}.")
        return document_id

    client = cast("ApiClient", ListClient())
    external_id = RENEWED_LEASE["external_id"]
    assert (
        await call_with_id(client, DOCUMENTS, external_id, fetch, True)
        == RENEWED_LEASE["document_id"]
    )
    with pytest.raises(NotFound):
        await call_with_id(client, DOCUMENTS, str(UUID(int=7)), fetch, True)


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


@pytest.mark.parametrize(
    ("body", "prov", "added"),
    [(make_document_lineage(), False, {"schema_version": 1}), ({"entity": {}}, True, {})],
)
def test_lineage_json_is_the_response_body(
    body: dict[str, Any], prov: bool, added: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert print_lineage(body, prov, RemoteOptions(as_json=True), _format_document) == 0
    assert json.loads(capsys.readouterr().out) == body | added


__all__ = ["serve_answers"]

GOLDEN_RUN = "7d4f1c9e-0b1c-8f6e-9a51-2f0c6f7f2f11"
CHUNK_ID = "0b6c2f6e-6f0c-4c51-9a0e-4f9d1b7a7c11"
RECEIPT = {"status": "accepted", "feedback_id": GOLDEN_RUN, "judgements": 1}
DRAFT: dict[str, Any] = {
    "query": "When: the tower?",
    "grades": {CHUNK_ID: 3},
    "document": "tower",
    "passage": "The tower was built in 1950.",
}


def test_list_shows_question_with_cited_passages(
    serve_answers: ServeAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    passage = {"n": 1, "chunk_id": CHUNK_ID, "title": None, "quote": "in shallow water"}
    item = {
        "query": "Where?",
        "run_id": GOLDEN_RUN,
        "probability": 0.4,
        "useful": True,
        "passages": [passage],
    }
    serve_answers({"/v1/judgements/candidates": {"items": [item], "next": None}}, 1)
    assert main(["eval", "candidates", "list"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"{GOLDEN_RUN}  Where?  (probability 0.40, useful)"
    assert CHUNK_ID in second and "in shallow water" in second


@pytest.mark.parametrize(
    ("options", "grades"), [([], {CHUNK_ID: 3}), (["--chunk", f"{GOLDEN_RUN}=2"], {GOLDEN_RUN: 2})]
)
def test_accept_grades_lead_citation_or_named_chunks(
    serve_answers: ServeAnswers, options: list[str], grades: dict[str, int]
) -> None:
    run = {"response": {"citations": [{"chunk_id": CHUNK_ID}, {"chunk_id": GOLDEN_RUN}]}}
    requests = serve_answers({f"/v1/runs/{GOLDEN_RUN}": run, "/v1/feedback": RECEIPT}, 2)
    assert main(["eval", "candidates", "accept", GOLDEN_RUN, *options]) == 0
    assert json.loads(requests[-1][1]) == {"run_id": GOLDEN_RUN, "grades": grades}


def test_run_without_citation_is_not_accepted(
    serve_answers: ServeAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = serve_answers({f"/v1/runs/{GOLDEN_RUN}": {"response": {"citations": []}}}, 1)
    assert main(["eval", "candidates", "accept", GOLDEN_RUN]) != 0
    assert len(requests) == 1 and "--chunk" in capsys.readouterr().err


def test_reject_is_sent_as_feedback(serve_answers: ServeAnswers) -> None:
    requests = serve_answers({"/v1/feedback": RECEIPT}, 1)
    assert main(["eval", "candidates", "reject", GOLDEN_RUN]) == 0
    assert json.loads(requests[0][1]) == {"run_id": GOLDEN_RUN, "candidate_rejected": True}


def test_drafts_are_imported_without_reading_aids(
    serve_answers: ServeAnswers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "questions.jsonl"
    answers = {"/v1/judgements/drafts": {"items": [DRAFT, DRAFT]}, "/v1/feedback": RECEIPT}
    requests = serve_answers(answers, 3)
    assert main(["eval", "drafts", str(file)]) == 0
    assert len(file.read_text().splitlines()) == 2
    assert main(["eval", "import", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["imported"] == 2
    assert [json.loads(body) for path, body in requests if path == "/v1/feedback"] == [
        {"query": DRAFT["query"], "grades": DRAFT["grades"]}
    ] * 2


def test_edited_drafts_are_not_overwritten(serve_answers: ServeAnswers, tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text("edited")
    serve_answers({"/v1/judgements/drafts": {"items": [DRAFT]}}, 1)
    assert main(["eval", "drafts", str(file)]) != 0
    assert file.read_text() == "edited"


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        json.dumps({"query": "Why?"}),
        json.dumps(DRAFT | {"grades": {CHUNK_ID: 4}}),
        json.dumps(DRAFT | {"grades": {"no id": 3}}),
        json.dumps(DRAFT | {"url": "http://169.254.169.254/"}),
    ],
)
def test_invalid_line_stops_import_before_first_question(
    serve_answers: ServeAnswers, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(f"{json.dumps(DRAFT)}\n{line}\n")
    requests = serve_answers({"/v1/feedback": RECEIPT}, 2)
    assert main(["eval", "import", str(file)]) != 0
    assert requests == [] and "questions.jsonl line 2" in capsys.readouterr().err
