"""`anabranch watch`: events as the log takes them, in lines."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from anabranch.cli.interrupted import going_on
from anabranch.cli.options import Remote
from anabranch.cli.output import print_line, say
from schemas.errors import ConfigurationError
from schemas.moments import in_utc

if TYPE_CHECKING:
    from anabranch.client import ApiClient

POLL_S = 0.5
PAGE = 500
AGO = re.compile(r"-?(\d+)([smhd])")
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
TOLD = {
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
"""What a letter behind % stands for."""

Entry = dict[str, Any]
Show = Callable[[Entry], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """`after` is a place, `begin` or `now`."""

    after: str = "now"
    since: datetime | None = None
    until: datetime | None = None
    topics: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    document: str | None = None

    def asked(self) -> dict[str, Any]:
        """Of the server; the rest is looked at here."""
        since = self.since.isoformat() if self.since else None
        return {"topics": ",".join(self.topics) or None, "document": self.document, "since": since, "limit": PAGE}

    def shows(self, entry: Entry) -> bool:
        return (
            (not self.types or any(_is(entry["type"], wished) for wished in self.types))
            and all(entry["key"] == key for key in self.keys)
            and (self.until is None or datetime.fromisoformat(entry["appended_at"]) < self.until)
        )

    def over(self, now: datetime) -> bool:
        return self.until is not None and now >= self.until


def beginning(text: str | None, now: datetime) -> tuple[str, datetime | None]:
    """The place to read from, and the time before which nothing is wanted."""
    if text is None or text in ("begin", "now"):
        return text or "now", None
    moment = _moment(text, now)
    return ("begin", moment) if moment else (text, None)


def end(text: str | None, now: datetime) -> datetime | None:
    """Raises ConfigurationError for what is no time."""
    if text is None or text == "now":
        return now if text else None
    moment = _moment(text, now)
    if moment is None:
        raise ConfigurationError(f"--until {text}: no time", remedy="Write now, -15m (s, m, h or d), or a time such as 2026-11-22T08:30.")
    return moment


def shown(form: str | None, *, as_json: bool) -> Show:
    """Raises ConfigurationError for a form with a letter that stands for nothing."""
    if form is None:
        return print_line if as_json else _plainly
    if as_json:
        raise ConfigurationError("--format and --json are two forms of the same line", remedy="Give one of them.")
    if unknown := set(re.findall(r"%(.?)", form)) - {*TOLD, "%"}:
        letters = ", ".join(f"%{letter}" for letter in TOLD)
        raise ConfigurationError(f"--format: %{min(unknown)} stands for nothing", remedy=f"There are {letters} and %%.")
    return lambda entry: print(re.sub("%(.)", lambda found: _told(entry, found[1]), form), flush=True)


async def watch_log(wanted: Wanted, show: Show, common: Remote) -> int:
    """Until interrupted, or until nothing more can be wanted."""
    from anabranch.cli.serving import api_client

    async with api_client(common) as client:
        await follow(client, wanted, show, quiet=common.quiet)
    return 0


async def follow(client: ApiClient, wanted: Wanted, show: Show, *, quiet: bool = False, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
    """Whoever interrupts it, or loses the server, is told how to go on."""
    place = wanted.after
    with going_on(lambda: f"to go on from here: --from {place}", quiet=quiet):
        while True:
            page = await client.get("/v1/events", after=place, **wanted.asked())
            if page["missed"]:
                say(f"{'at least ' if page['at_least'] else ''}{page['missed']} earlier events are no longer kept")
            for entry in filter(wanted.shows, page["items"]):
                show(entry)
            place = page["next"]
            if page["end"] and wanted.over(now()):
                return
            if page["end"]:
                await asyncio.sleep(POLL_S)


def _moment(text: str, now: datetime) -> datetime | None:
    """None for what is no time. Raises ConfigurationError for one that the calendar does not reach."""
    if ago := AGO.fullmatch(text):
        return _reached(text, lambda: now - timedelta(**{UNITS[ago[2]]: int(ago[1])}))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return _reached(text, lambda: in_utc(moment))


def _reached(text: str, moment: Callable[[], datetime]) -> datetime:
    try:
        return moment()
    except (OverflowError, ValueError) as error:
        raise ConfigurationError(f"{text} lies before year 1 or after year 9999", remedy="Write begin for all that the log has.") from error


def _is(found: str | None, wished: str) -> bool:
    return found is not None and (found == wished or found.rpartition(".v")[0] == wished)


def _told(entry: Entry, letter: str) -> str:
    if letter == "%":
        return letter
    value = entry[TOLD[letter]]
    if letter == "v" and value is not None:
        return json.dumps(value, ensure_ascii=False)
    return "-" if value is None else str(value)


def _plainly(entry: Entry) -> None:
    place = f"{entry['topic']}[{entry['partition']}]@{entry['offset']}"
    data = entry["data"] or {}
    note = " ".join(str(data[name]) for name in ("external_id", "code", "detail") if data.get(name))
    when = datetime.fromisoformat(entry["appended_at"]).isoformat(timespec="milliseconds")
    print(f"{when}  {place:18}  {entry['type'] or 'unreadable':26}  {entry['document_id'] or entry['key'] or '-'}  {note}".rstrip(), flush=True)
