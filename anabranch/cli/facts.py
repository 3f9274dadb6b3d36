"""`anabranch facts`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from cyclopts import App, Parameter

from anabranch.cli.api_calls import format_time, get, post
from anabranch.cli.erase import run_erase
from anabranch.cli.options import FIRST_PAGE, JUDGEMENT_STAGES, PageOptions, RemoteOptions, Yes
from schemas.facts import FactStatus

app = App(
    name="facts",
    help="State, approve, reject and erase facts.",
    result_action="return_value",
)
Flag = Parameter(negative="")
DEFAULT = RemoteOptions()
FactId = Annotated[UUID, Parameter(help="Fact id.")]


@app.command
def add(
    subject: str,
    predicate: str,
    object: str,  # noqa: A002  the term of the field
    /,
    *,
    certainty: float = 1.0,
    half_life: float | None = None,
    source: str | None = None,
    expires: datetime | None = None,
    reader: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    replaces: UUID | None = None,
    common: RemoteOptions = DEFAULT,
) -> int:
    """Propose a fact, such as `"The contact for plant 3" is Ana`.

    Parameters
    ----------
    subject
        Whom or what it is about.
    predicate
        The relation.
    object
        The value.
    certainty
        Certainty above 0 and up to 1. It decays with time.
    half_life
        Days in which the certainty halves, instead of the profile's.
    source
        Where the fact comes from.
    expires
        Do not use the fact from this time on (UTC unless it has a zone).
    reader
        Name that may read the fact, such as user:ana. Repeatable; without it, the whole tenant.
    replaces
        Id of the fact that this one replaces once it is approved.
    """
    body = {
        "subject": subject,
        "predicate": predicate,
        "object": object,
        "certainty": certainty,
        "half_life_days": half_life,
        "source": source,
        "expires_at": format_time(expires),
        "readers": list(reader) or None,
        "replaces": str(replaces) if replaces else None,
    }
    receipt = post("/v1/facts", body, common, stages=JUDGEMENT_STAGES)
    state = "exists already" if receipt["duplicate"] else "proposed"
    return common.show(receipt, lambda: print(f"{state}: {receipt['fact_id']}"))


@app.command(name="list")
def list_facts(
    *,
    status: FactStatus | None = None,
    page: PageOptions = FIRST_PAGE,
    common: RemoteOptions = DEFAULT,
) -> int:
    """List facts, the newest first.

    Parameters
    ----------
    status
        Only facts in this status.
    """
    found = get("/v1/facts", common, status=status, **page.to_query())
    return common.show_page(
        found,
        *("fact_id", "status"),
        ("fact", lambda item: f"{item['subject']} {item['predicate']} {item['object']}"),
        *("certainty", "stated_by", "stated_at"),
        optional=("certainty", "stated_by"),
    )


@app.command
def approve(fact: FactId, /, *, common: RemoteOptions = DEFAULT) -> int:
    """Approve a fact, so that answers use it."""
    return _decide(f"/v1/facts/{fact}/approve", {}, "approved", common)


@app.command
def reject(fact: FactId, /, *, reason: str | None = None, common: RemoteOptions = DEFAULT) -> int:
    """Reject a fact, also one that was approved before.

    Parameters
    ----------
    reason
        Free text.
    """
    return _decide(f"/v1/facts/{fact}/reject", {"reason": reason}, "rejected", common)


@app.command
def delete(fact: FactId, /, *, yes: Yes = False, common: RemoteOptions = DEFAULT) -> int:
    """Erase a fact permanently, with its text in the log and the answers that cite it."""
    return run_erase("fact", str(fact), yes, common)


def _decide(path: str, body: dict[str, Any], decision: str, common: RemoteOptions) -> int:
    receipt = post(path, body, common, stages=JUDGEMENT_STAGES)
    text = (
        decision
        if receipt["status"] == "applied"
        else f"accepted; {decision} once the workers have read it, see `anabranch facts list`"
    )
    return common.show(receipt, lambda: print(text))
