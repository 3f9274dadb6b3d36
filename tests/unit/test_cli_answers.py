from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from anabranch.cli import main
from anabranch.cli.answer_stream import answer_of, as_lines, as_talk
from anabranch.cli.ask import Wanted
from anabranch.cli.ingest import summary
from anabranch.cli.options import Remote
from anabranch.cli.serving import tell_who_goes_on
from anabranch.client import ApiClient, _events, _told
from anabranch.ingestion import Ingestion, Source, gather_sources
from schemas.errors import ConfigurationError, NotFound, TransientError

Event = tuple[str, dict[str, Any]]
ANSWER: Event = ("answer", {"answer": "At six.", "refused": False})


async def given(*events: Event) -> AsyncIterator[Event]:
    for event in events:
        yield event


async def lines(text: str) -> AsyncIterator[str]:
    for line in text.splitlines():
        yield line


async def test_the_words_of_a_draft_are_talk_and_a_second_draft_says_that_the_first_does_not_hold(capsys: pytest.CaptureFixture[str]) -> None:
    deltas = [("delta", {"draft": draft, "text": text}) for draft, text in ((1, "At "), (1, "five."), (2, "At six."))]
    assert await answer_of(given(*deltas, ANSWER), as_talk(quiet=False)) == ANSWER[1]
    told = capsys.readouterr()
    assert told.out == ""
    assert "At five.\nthat draft does not hold; another one:\nAt six." in told.err


async def test_quiet_keeps_drafts_and_steps_to_itself(capsys: pytest.CaptureFixture[str]) -> None:
    await answer_of(given(("step", {"name": "fuse", "ms": 1.0}), ("delta", {"draft": 1, "text": "At"}), ANSWER), as_talk(quiet=True))
    assert capsys.readouterr().err == ""


async def test_each_event_is_a_line_of_json_with_a_schema_version(capsys: pytest.CaptureFixture[str]) -> None:
    await answer_of(given(("started", {}), ANSWER), as_lines)
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["event"], line["schema_version"]) for line in printed] == [("started", 1), ("answer", 1)]


async def test_a_stream_that_ends_before_its_answer_is_no_answer() -> None:
    with pytest.raises(TransientError, match="before the answer"):
        await answer_of(given(("started", {})), as_lines)


async def test_comments_of_a_stream_are_passed_over() -> None:
    stream = 'event: started\ndata: {}\n\n: working\n\nevent: answer\ndata: {"answer": "x"}\n'
    assert [event async for event in _events(lines(stream))] == [("started", "{}"), ("answer", '{"answer": "x"}')]


@pytest.mark.parametrize("code", ["NOT_FOUND", "NO_SUCH_GENERATION", "INVALID_REQUEST", "BUSY", "NO_SUCH_PATH"])
def test_a_remedy_for_programs_that_use_http_is_not_told_at_the_command_line(code: str) -> None:
    error = _told(404, json.dumps({"detail": "no document x", "code": code, "remedy": "GET /v1/documents lists them; see /openapi.json."}))
    assert error.detail == "no document x"
    assert error.remedy
    assert not any(word in error.remedy for word in ("GET", "/v1/", "/openapi.json"))


@pytest.mark.parametrize(
    ("told", "here"),
    [
        (
            "It may not have reached the log yet; GET /v1/runs lists those that have.",
            "It may not have reached the log yet; `anabranch runs list` lists those that have.",
        ),
        ("It may still be on its way: GET /v1/documents/{id} says.", "It may still be on its way: `anabranch documents show` says."),
        ("The topics are raw, accepted.", "The topics are raw, accepted."),
        ("Take `next` of the page before.", "Take the `--after` that the page before it named."),
    ],
)
def test_a_call_that_a_remedy_names_is_told_as_the_command_that_makes_it(told: str, here: str) -> None:
    assert _told(422, json.dumps({"detail": "x", "code": "INVALID_REQUEST", "remedy": told})).remedy == here


def test_what_is_wrong_with_a_body_is_told_in_options() -> None:
    told = "body.query: the question has no word in it; body: say which: event_ids, document_id, stage, code, or all"
    here = "query: the question has no word in it; say which: event_ids, document_id, stage, code, or all"
    assert _told(422, json.dumps({"detail": told, "code": "INVALID_REQUEST"})).detail == here


def test_any_other_remedy_is_told_as_it_came_and_an_answer_without_json_by_its_status() -> None:
    assert _told(422, json.dumps({"detail": "x", "code": "UNKNOWN_PROFILE", "remedy": "Use one of: default."})).remedy == "Use one of: default."
    assert (type(_told(404, "nothing here")), _told(404, "nothing here").code) == (NotFound, "HTTP_404")


def test_each_source_counts_once() -> None:
    sources = [
        Source("a", "file", state="searchable"),
        Source("b", "file", state="searchable", duplicate=True),
        Source("c", "file", state="failed", duplicate=True),
        Source("d", "file", state="accepted", duplicate=True),
        Source("e", "file", state="running"),
    ]
    assert Ingestion(sources).report()["counts"] == {"searchable": 1, "failed": 1, "duplicate": 2}
    assert [one["state"] for one in Ingestion(sources).report()["documents"]] == ["searchable", "duplicate", "failed", "duplicate", "running"]
    assert summary(sources) == "2 duplicate, 1 searchable, 1 failed, 1 running"
    assert summary([]) == "nothing to do"


@pytest.mark.parametrize(("address", "way_out"), [("ftp://example.org/a.pdf", "stdin"), ("s3://bucket/a.pdf", "stdin"), ("file:///a.pdf", "path")])
def test_an_address_that_is_not_fetched_is_named_with_the_way_out(address: str, way_out: str) -> None:
    with pytest.raises(ConfigurationError, match="only http and https") as caught:
        gather_sources([address], glob="*", recursive=False)
    assert caught.value.code == "FORBIDDEN_ADDRESS"
    assert way_out in caught.value.remedy


def test_the_scheme_of_an_address_may_be_written_in_capitals() -> None:
    assert [source.kind for source in gather_sources(["HTTPS://example.org/x"], glob="*", recursive=False)] == ["url"]


@pytest.mark.parametrize("timeout", ["soon", "nan", "-5m", ""])
def test_a_bad_timeout_is_told_whether_or_not_it_would_be_used(timeout: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ingest", "-", f"--timeout={timeout}", "--server", "http://127.0.0.1:9"]) == 2
    assert "Write 90s, 10m or 2h." in capsys.readouterr().err


def test_channels_of_a_question_are_checked_and_only_sent_when_named() -> None:
    assert "channels" not in Wanted().body("x")
    assert Wanted(channels="semantic, lexical").body("x")["channels"] == ["lexical", "semantic"]
    with pytest.raises(ConfigurationError, match="'lex'"):
        Wanted(channels="lex").body("x")


@pytest.mark.parametrize("state", ["bogus", "superseded"])
def test_a_state_that_no_document_has_is_a_usage_error_that_names_those_there_are(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["documents", "list", "--state", state, "--server", "http://127.0.0.1:9"])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert all(name in told for name in ("running", "searchable", "failed", "withdrawn"))


@pytest.mark.parametrize(("passing", "told"), [(True, True), (False, False)])
def test_what_is_only_accepted_is_told_where_no_server_stays_to_do_it(passing: bool, told: bool, capsys: pytest.CaptureFixture[str]) -> None:
    client = ApiClient("http://server", passing=passing)
    tell_who_goes_on(client, Remote())
    tell_who_goes_on(client, Remote(quiet=True))
    assert capsys.readouterr().err.count("goes on while `anabranch up` runs") == told
    asyncio.run(client.http.aclose())
