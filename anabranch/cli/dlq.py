"""`anabranch dlq`: events that a stage could not process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any
from uuid import UUID

from cyclopts import App, Parameter
from cyclopts.validators import Number

from anabranch.cli.calls import got, posted
from anabranch.cli.exits import OK
from anabranch.cli.options import Remote
from anabranch.cli.output import called, print_fields, print_table, say
from anabranch.cli.rates import Rate
from schemas.errors import NotFound

app = App(name="dlq", help="Events that could not be processed: list, show, redrive, discard.", result_action="return_value")
Flag = Parameter(negative="")
DEFAULT = Remote()


@app.command(name="list")
def list_letters(
    *,
    by_cause: Annotated[bool, Flag] = False,
    stage: str | None = None,
    limit: Annotated[int, Parameter(validator=Number(gte=1))] = 50,
    after: str | None = None,
    common: Remote = DEFAULT,
) -> int:
    """Open dead letters, the latest first.

    Parameters
    ----------
    by_cause
        One line a stage and code, with how many there are.
    stage
        Of this stage.
    limit
        At most so many.
    after
        `next` of the page before.
    """
    page = got("/v1/dead-letters/causes", common) if by_cause else got("/v1/dead-letters", common, stage=stage, limit=limit, after=after)
    if common.json:
        common.show(page)
    elif by_cause:
        headings = ("events", "stage", "code", "first", "last", "latest_detail")
        print_table(headings, [tuple(item[name] for name in headings) for item in page["items"]])
    else:
        told = ("event_id", "stage", "code", "attempts", "buried_at")
        rows = [(*(item[name] for name in told), called(item), item["detail"]) for item in page["items"]]
        print_table((*told, "document", "detail"), rows)
        if page["next"]:
            say(f"more: --after {page['next']}", quiet=common.quiet)
    return OK


@app.command
def show(event: UUID, /, *, common: Remote = DEFAULT) -> int:
    """A dead letter: where its event stands in the log, why it was buried, and what to do.

    Parameters
    ----------
    event
        Its id.
    """
    found = next((item for item in _letters(common) if item["event_id"] == str(event)), None)
    if found is None:
        raise NotFound(f"no open dead letter {event}", remedy="`anabranch dlq list` names them.")
    return _show(found, common)


def _letters(common: Remote) -> Iterator[dict[str, Any]]:
    """All that are open, page by page."""
    after = None
    while True:
        page = got("/v1/dead-letters", common, limit=500, after=after)
        yield from page["items"]
        if (after := page["next"]) is None:
            return


@app.command
def redrive(
    *events: UUID,
    stage: str | None = None,
    code: str | None = None,
    everything: Annotated[bool, Parameter(name="--all", negative="")] = False,
    dry_run: Annotated[bool, Flag] = False,
    rate: Rate = None,
    common: Remote = DEFAULT,
) -> int:
    """Read buried events again at their own place, with their own order, and wait until that is done. Exits 5 where some were buried again.

    Parameters
    ----------
    events
        Their ids.
    stage
        Those of this stage.
    code
        Those with this code.
    everything
        All that are open.
    dry_run
        Only say how many.
    rate
        Events a second at most: 50, or 50/s.
    """
    return _redriven(_chosen(events, stage, code, everything, dry_run) | {"per_second": rate}, common)


def retry(document: UUID, /, *, common: Remote = DEFAULT) -> int:
    """Read again what failed of a document, at its own place in the log, and wait until that is done. Exits 5 where it failed again.

    Parameters
    ----------
    document
        Its id.
    """
    return _redriven({"document_id": str(document)}, common)


def _redriven(wanted: dict[str, Any], common: Remote) -> int:
    from anabranch.cli.replay import came_to, waited

    answer = asyncio.run(waited("/v1/dead-letters/redrive", wanted, common))
    if common.json:
        common.show(answer)
        return came_to(answer["replays"])
    print(f"{answer['events']} events: " + ", ".join(f"{name} {count}" for name, count in answer["stages"].items()))
    if answer["left_out"]:
        say(f"{answer['left_out']} were left out: no generation reads their topics any more", quiet=common.quiet)
    for found in answer["replays"]:
        print(f"{found['stage']}: {found['replayed']} went through, {found['superseded']} overtaken meanwhile, {found['buried']} buried again")
    return came_to(answer["replays"])


@app.command
def discard(
    *events: UUID,
    reason: str,
    stage: str | None = None,
    code: str | None = None,
    everything: Annotated[bool, Parameter(name="--all", negative="")] = False,
    dry_run: Annotated[bool, Flag] = False,
    common: Remote = DEFAULT,
) -> int:
    """Close dead letters for good. Their events stay in the log.

    Parameters
    ----------
    events
        Their ids.
    reason
        Why; it is kept.
    stage
        Those of this stage.
    code
        Those with this code.
    everything
        All that are open.
    dry_run
        Only say how many.
    """
    answer = posted("/v1/dead-letters/discard", _chosen(events, stage, code, everything, dry_run) | {"reason": reason}, common)
    if common.json:
        common.show(answer)
    else:
        print(f"{answer['events']} events" + (" would be discarded" if dry_run else " discarded"))
    return OK


def _show(item: dict[str, Any], common: Remote) -> int:
    if common.json:
        common.show(item)
        return OK
    print_fields(item)
    return OK


def _chosen(events: tuple[UUID, ...], stage: str | None, code: str | None, everything: bool, dry_run: bool) -> dict[str, Any]:
    return {"event_ids": [str(event) for event in events] or None, "stage": stage, "code": code, "all": everything, "dry_run": dry_run}
