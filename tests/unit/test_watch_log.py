from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from anabranch.cli import main
from anabranch.cli.http_client import ApiClient
from anabranch.cli.watch import EventFilter, follow, make_entry_printer, parse_end, parse_start
from schemas.errors import ConfigurationError

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def make_entry(
    offset: int, kind: str = "document.indexed.v1", key: str = "a", minutes: int = 0, **more: Any
) -> dict[str, Any]:
    when = (NOON + timedelta(minutes=minutes)).isoformat()
    plain = {
        "topic": "outcomes",
        "partition": 0,
        "offset": offset,
        "type": kind,
        "key": key,
        "document_id": None,
        "appended_at": when,
        "data": None,
    }
    return plain | {"cursor": f"7.{offset}", "id": "i", "source": "s"} | more


class FakeEventPages:
    """Serves pages by cursor."""

    def __init__(self, *pages: list[dict[str, Any]]) -> None:
        self.pages, self.requests = list(pages), list[dict[str, str]]()

    def client(self) -> ApiClient:
        found = ApiClient("http://server")
        found.http = httpx2.AsyncClient(
            transport=httpx2.MockTransport(self), base_url="http://server"
        )
        return found

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(dict(request.url.params))
        after = self.requests[-1]["after"]
        place = int(after) if after.isdigit() else 0
        items = self.pages[place] if place < len(self.pages) else []
        return httpx2.Response(
            200,
            json={
                "items": items,
                "next": str(place + 1),
                "end": place + 1 >= len(self.pages),
                "missed": 0,
                "at_least": False,
            },
        )


async def watch_offsets(log: FakeEventPages, wanted: EventFilter) -> list[int]:
    """Return the offsets that the command printed."""
    found: list[dict[str, Any]] = []
    async with log.client() as client:
        await follow(client, wanted, found.append, now=lambda: NOON + timedelta(hours=1))
    return [one["offset"] for one in found]


async def test_watch_reads_pages_until_the_end() -> None:
    log = FakeEventPages([make_entry(1), make_entry(2)], [make_entry(3)])
    assert await watch_offsets(
        log, EventFilter(after="begin", until=NOON + timedelta(hours=1))
    ) == [1, 2, 3]
    assert [request["after"] for request in log.requests] == ["begin", "1"]


async def test_watch_filters_by_type_key_and_time() -> None:
    log = FakeEventPages(
        [
            make_entry(1),
            make_entry(2, "document.failed.v1"),
            make_entry(3, key="b"),
            make_entry(4, "document.indexed.v2", minutes=9),
            make_entry(5, "document.indexed", minutes=9),
        ]
    )
    wanted = EventFilter(
        after="begin", until=NOON + timedelta(minutes=10), types=("document.indexed",), keys=("a",)
    )
    assert await watch_offsets(log, wanted) == [1, 4, 5]
    assert await watch_offsets(
        log, EventFilter(after="begin", until=NOON + timedelta(minutes=9))
    ) == [1, 2, 3]
    assert await watch_offsets(
        log,
        EventFilter(
            after="begin", until=NOON + timedelta(minutes=10), types=("document.indexed.v2",)
        ),
    ) == [4]


async def test_watch_passes_filters_to_the_server() -> None:
    log = FakeEventPages([])
    await watch_offsets(
        log,
        EventFilter(
            after="begin", since=NOON, until=NOON, topics=("raw", "outcomes"), document="d"
        ),
    )
    assert log.requests == [
        {
            "after": "begin",
            "topics": "raw,outcomes",
            "document": "d",
            "since": NOON.isoformat(),
            "limit": "500",
        }
    ]


async def test_interrupted_watch_prints_resume_option(capsys: pytest.CaptureFixture[str]) -> None:
    seen = asyncio.Event()
    async with FakeEventPages([make_entry(1)]).client() as client:
        watching = asyncio.create_task(follow(client, EventFilter(), lambda found: seen.set()))
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
def test_from_option_accepts_cursor_time_or_age(
    text: str | None, place: tuple[str, datetime | None]
) -> None:
    assert parse_start(text, NOON) == place


def test_until_option_accepts_only_a_time() -> None:
    assert (parse_end(None, NOON), parse_end("now", NOON), parse_end("-1h", NOON)) == (
        None,
        NOON,
        NOON - timedelta(hours=1),
    )
    with pytest.raises(ConfigurationError):
        parse_end("772.1", NOON)


def test_format_option_selects_fields(capsys: pytest.CaptureFixture[str]) -> None:
    make_entry_printer("%t %p %o %k %d 100%%", as_json=False)(make_entry(7))
    make_entry_printer("%v", as_json=False)(make_entry(7, data={"code": "UNCHANGED"}))
    make_entry_printer(None, as_json=False)(
        make_entry(7, data={"external_id": "contract-17", "code": "UNCHANGED"})
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["outcomes 0 7 a - 100%", '{"code": "UNCHANGED"}']
    assert lines[2].split() == [
        "2026-11-22T12:00:00.000+00:00",
        "outcomes[0]@7",
        "document.indexed.v1",
        "a",
        "contract-17",
        "UNCHANGED",
    ]


@pytest.mark.parametrize("form", ["%q", "100%"])
def test_unknown_format_placeholder_is_rejected(form: str) -> None:
    with pytest.raises(ConfigurationError, match="Unknown field"):
        make_entry_printer(form, as_json=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--glob", "*.md"], "--glob needs a folder"),
        ([".", "--from", "-15m"], "--from applies to the log only"),
        (["--json", "--format", "%t"], "cannot be combined"),
        (["--until", "soon"], "Invalid time --until soon"),
    ],
)
def test_ineffective_watch_options_are_rejected(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", *arguments]) == 2
    assert message in capsys.readouterr().err
