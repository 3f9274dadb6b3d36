"""`anabranch watch`: print the events on the log as they are appended."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from anabranch.cli.options import RemoteOptions, make_conflict_error
from anabranch.cli.output import print_json_line, print_stderr, resume_hint
from schemas.errors import ConfigurationError
from schemas.timestamps import to_utc

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient

POLL_S = 0.5
PAGE_SIZE = 500
AGO_PATTERN = re.compile(r"-?(\d+)([smhd])")
TIMEDELTA_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
FORMAT_FIELDS = {
    "t": "topic",
    "p": "partition",
    "o": "offset",
    "k": "key",
    "y": "type",
    "d": "document_id",
    "i": "id",
    "s": "source",
    "a": "appended_at",
    "c": "cursor",
    "v": "data",
}
"""Field of an entry by the letter after %."""

Entry = dict[str, Any]
PrintEntry = Callable[[Entry], None]


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Filter of events; `after` is a cursor, `begin` or `now`."""

    after: str = "now"
    since: datetime | None = None
    until: datetime | None = None
    topics: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    document: str | None = None

    def to_query(self) -> dict[str, Any]:
        """Return the filters that the server applies; `is_match` applies the others."""
        since = self.since.isoformat() if self.since else None
        return {
            "topics": ",".join(self.topics) or None,
            "document": self.document,
            "since": since,
            "limit": PAGE_SIZE,
        }

    def is_match(self, entry: Entry) -> bool:
        return (
            (
                not self.types
                or any(_is_type(entry["type"], event_type) for event_type in self.types)
            )
            and all(entry["key"] == key for key in self.keys)
            and (self.until is None or datetime.fromisoformat(entry["appended_at"]) < self.until)
        )

    def is_past_end(self, now: datetime) -> bool:
        return self.until is not None and now >= self.until


def parse_start(text: str | None, now: datetime) -> tuple[str, datetime | None]:
    """Return the cursor to read from, and the earliest time to show."""
    if text is None or text in ("begin", "now"):
        return text or "now", None
    moment = _parse_time(text, now)
    return ("begin", moment) if moment else (text, None)


def parse_end(text: str | None, now: datetime) -> datetime | None:
    """Return the time to stop at. Raises ConfigurationError if the text is not a time."""
    if text is None or text == "now":
        return now if text else None
    moment = _parse_time(text, now)
    if moment is None:
        raise ConfigurationError(
            f"Invalid time --until {text}.",
            remedy="Use now, -15m (s, m, h or d), or a time such as 2026-11-22T08:30.",
        )
    return moment


def make_entry_printer(line_format: str | None, *, as_json: bool) -> PrintEntry:
    """Return the function that prints an entry.

    Raises InvalidRequest for --format with --json, ConfigurationError for an unknown letter.
    """
    if line_format is None:
        return print_json_line if as_json else _print_plain
    if as_json:
        raise make_conflict_error("--format", "--json")
    if unknown := set(re.findall(r"%(.?)", line_format)) - {*FORMAT_FIELDS, "%"}:
        letters = ", ".join(f"%{letter}" for letter in FORMAT_FIELDS)
        raise ConfigurationError(
            f"Unknown field %{min(unknown)} in --format.",
            remedy=f"Available fields: {letters} and %%.",
        )
    return lambda entry: print(
        re.sub("%(.)", lambda match: _format_field(entry, match[1]), line_format), flush=True
    )


async def watch_log(
    event_filter: EventFilter, print_entry: PrintEntry, common: RemoteOptions
) -> int:
    """Print events until interrupted, or until the end of the filter's time range."""
    from anabranch.cli.server_connection import open_client

    async with open_client(common) as client:
        await follow(client, event_filter, print_entry, quiet=common.quiet)
    return 0


async def follow(
    client: ApiClient,
    event_filter: EventFilter,
    print_entry: PrintEntry,
    *,
    quiet: bool = False,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Print events as they arrive.

    If interrupted, or if the server becomes unreachable, print the cursor to resume from.
    """
    cursor = event_filter.after
    with resume_hint(lambda: f"to resume: --from {cursor}", quiet=quiet):
        while True:
            page = await client.get("/v1/events", after=cursor, **event_filter.to_query())
            if page["missed"]:
                print_stderr(
                    f"{'at least ' if page['at_least'] else ''}{page['missed']} earlier events "
                    "have expired"
                )
            for entry in filter(event_filter.is_match, page["items"]):
                print_entry(entry)
            # After printing, so that an interrupted page is repeated rather than skipped.
            cursor = page["next"]
            if page["end"] and event_filter.is_past_end(now()):
                return
            if page["end"]:
                await asyncio.sleep(POLL_S)


def _parse_time(text: str, now: datetime) -> datetime | None:
    """Parse a time or an age; return None for other text.

    Raises ConfigurationError for a time out of range.
    """
    if match := AGO_PATTERN.fullmatch(text):
        return _evaluate_time(
            text, lambda: now - timedelta(**{TIMEDELTA_UNITS[match[2]]: int(match[1])})
        )
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return _evaluate_time(text, lambda: to_utc(moment))


def _evaluate_time(text: str, compute_time: Callable[[], datetime]) -> datetime:
    try:
        return compute_time()
    except (OverflowError, ValueError) as error:
        raise ConfigurationError(
            f"Time {text} is before year 1 or after year 9999.",
            remedy="Use begin to show the whole log.",
        ) from error


def _is_type(entry_type: str | None, event_type: str) -> bool:
    return entry_type is not None and (
        entry_type == event_type or entry_type.rpartition(".v")[0] == event_type
    )


def _format_field(entry: Entry, letter: str) -> str:
    if letter == "%":
        return letter
    value = entry[FORMAT_FIELDS[letter]]
    if letter == "v" and value is not None:
        return json.dumps(value, ensure_ascii=False)
    return "-" if value is None else str(value)


def _print_plain(entry: Entry) -> None:
    location = f"{entry['topic']}[{entry['partition']}]@{entry['offset']}"
    data = entry["data"] or {}
    note = " ".join(str(data[name]) for name in ("external_id", "code", "detail") if data.get(name))
    appended_at = datetime.fromisoformat(entry["appended_at"]).isoformat(timespec="milliseconds")
    print(
        (
            f"{appended_at}  {location:18}  {entry['type'] or 'unreadable':26}  "
            f"{entry['document_id'] or entry['key'] or '-'}  {note}"
        ).rstrip(),
        flush=True,
    )
