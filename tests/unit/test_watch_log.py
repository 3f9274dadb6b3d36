from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from anabranch.cli import main
from anabranch.cli.watch_log import Wanted, beginning, end, follow, shown
from anabranch.client import ApiClient
from schemas.errors import ConfigurationError

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def entry(offset: int, kind: str = "document.indexed.v1", key: str = "a", minutes: int = 0, **more: Any) -> dict[str, Any]:
    when = (NOON + timedelta(minutes=minutes)).isoformat()
    plain = {"topic": "outcomes", "partition": 0, "offset": offset, "type": kind, "key": key, "document_id": None, "appended_at": when, "data": None}
    return plain | {"cursor": f"7.{offset}", "id": "i", "source": "s"} | more


class Log:
    """Pages by place."""

    def __init__(self, *pages: list[dict[str, Any]]) -> None:
        self.pages, self.asked = list(pages), list[dict[str, str]]()

    def client(self) -> ApiClient:
        found = ApiClient("http://server")
        found.http = httpx2.AsyncClient(transport=httpx2.MockTransport(self), base_url="http://server")
        return found

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(dict(request.url.params))
        after = self.asked[-1]["after"]
        place = int(after) if after.isdigit() else 0
        items = self.pages[place] if place < len(self.pages) else []
        return httpx2.Response(200, json={"items": items, "next": str(place + 1), "end": place + 1 >= len(self.pages), "missed": 0, "at_least": False})


async def watched(log: Log, wanted: Wanted) -> list[int]:
    """Offsets of what was shown until it ended."""
    found: list[dict[str, Any]] = []
    async with log.client() as client:
        await follow(client, wanted, found.append, now=lambda: NOON + timedelta(hours=1))
    return [one["offset"] for one in found]


async def test_page_after_page_is_read_until_the_log_ends() -> None:
    log = Log([entry(1), entry(2)], [entry(3)])
    assert await watched(log, Wanted(after="begin", until=NOON + timedelta(hours=1))) == [1, 2, 3]
    assert [asked["after"] for asked in log.asked] == ["begin", "1"]


async def test_only_what_is_wanted_is_shown() -> None:
    log = Log(
        [entry(1), entry(2, "document.failed.v1"), entry(3, key="b"), entry(4, "document.indexed.v2", minutes=9), entry(5, "document.indexed", minutes=9)]
    )
    wanted = Wanted(after="begin", until=NOON + timedelta(minutes=10), types=("document.indexed",), keys=("a",))
    assert await watched(log, wanted) == [1, 4, 5]
    assert await watched(log, Wanted(after="begin", until=NOON + timedelta(minutes=9))) == [1, 2, 3]
    assert await watched(log, Wanted(after="begin", until=NOON + timedelta(minutes=10), types=("document.indexed.v2",))) == [4]


async def test_topics_document_and_beginning_are_asked_of_the_server() -> None:
    log = Log([])
    await watched(log, Wanted(after="begin", since=NOON, until=NOON, topics=("raw", "outcomes"), document="d"))
    assert log.asked == [{"after": "begin", "topics": "raw,outcomes", "document": "d", "since": NOON.isoformat(), "limit": "500"}]


async def test_whoever_interrupts_is_told_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    seen = asyncio.Event()
    async with Log([entry(1)]).client() as client:
        watching = asyncio.create_task(follow(client, Wanted(), lambda found: seen.set()))
        await seen.wait()
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching
    assert "--from 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (None, ("now", None)),
        ("begin", ("begin", None)),
        ("772.1", ("772.1", None)),
        ("-15m", ("begin", NOON - timedelta(minutes=15))),
        ("2d", ("begin", NOON - timedelta(days=2))),
        ("2026-11-22T08:30", ("begin", datetime(2026, 11, 22, 8, 30, tzinfo=UTC))),
    ],
)
def test_a_beginning_is_a_place_a_time_or_so_long_ago(text: str | None, place: tuple[str, datetime | None]) -> None:
    assert beginning(text, NOON) == place


def test_an_end_is_a_time() -> None:
    assert (end(None, NOON), end("now", NOON), end("-1h", NOON)) == (None, NOON, NOON - timedelta(hours=1))
    with pytest.raises(ConfigurationError):
        end("772.1", NOON)


def test_a_form_says_what_a_line_holds(capsys: pytest.CaptureFixture[str]) -> None:
    shown("%t %p %o %k %d 100%%", as_json=False)(entry(7))
    shown("%v", as_json=False)(entry(7, data={"code": "UNCHANGED"}))
    shown(None, as_json=False)(entry(7, data={"external_id": "contract-17", "code": "UNCHANGED"}))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["outcomes 0 7 a - 100%", '{"code": "UNCHANGED"}']
    assert lines[2].split() == ["2026-11-22T12:00:00.000+00:00", "outcomes[0]@7", "document.indexed.v1", "a", "contract-17", "UNCHANGED"]


@pytest.mark.parametrize("form", ["%q", "100%"])
def test_a_form_with_a_letter_that_stands_for_nothing_is_refused(form: str) -> None:
    with pytest.raises(ConfigurationError, match="stands for nothing"):
        shown(form, as_json=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--glob", "*.md"], "--glob is about a folder"),
        ([".", "--from", "-15m"], "--from is about the log"),
        (["--json", "--format", "%t"], "two forms of the same line"),
        (["--until", "soon"], "--until soon: no time"),
    ],
)
def test_what_would_do_nothing_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", *arguments]) == 2
    assert said in capsys.readouterr().err
