"""`anabranch facts`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from anabranch.cli.api_calls import call_api, format_time, get
from anabranch.cli.erase import erase_by_name
from anabranch.cli.names import FACTS, FactName, WholeFactName, find_id, post_by_name
from anabranch.cli.options import (
    FIRST_PAGE,
    JUDGEMENT_STAGES,
    REMOTE,
    PageOptions,
    RemoteOptions,
    Yes,
    make_group,
)
from schemas.facts import FactStatus

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient

app = make_group("facts")


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
    reader: tuple[str, ...] = (),
    replaces: str | None = None,
    common: RemoteOptions = REMOTE,
) -> int:
    """Propose a fact, such as `"The contact for plant 3" is Ana`.

    Args:
        subject: Whom or what it is about.
        predicate: The relation.
        object: The value.
        certainty: Certainty above 0 and up to 1. It decays with time.
        half_life: Days in which the certainty halves, instead of the profile's.
        source: Where the fact comes from.
        expires: Do not use the fact from this time on (UTC unless it has a zone).
        reader: Name that may read the fact, such as user:ana. Repeatable; without it, the whole
            tenant.
        replaces: Fact that this one replaces once it is approved: its id, first digits or text.
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
    }

    async def send(client: ApiClient) -> dict[str, Any]:
        replaced = await find_id(client, FACTS, replaces) if replaces else None
        return await client.post("/v1/facts", body | {"replaces": replaced})

    receipt = call_api(common, send, stages=JUDGEMENT_STAGES)
    state = "exists already" if receipt["duplicate"] else "proposed"
    return common.show(receipt, lambda: print(f"{state}: {receipt['fact_id']}"))


@app.command(name="list")
def list_facts(
    *,
    status: FactStatus | None = None,
    page: PageOptions = FIRST_PAGE,
    common: RemoteOptions = REMOTE,
) -> int:
    """List facts, the newest first.

    Args:
        status: Only facts in this status.
    """
    found = get("/v1/facts", common, status=status, **page.to_query())
    return common.show_page(
        found,
        *("fact_id", "status"),
        ("fact", lambda item: f"{item['subject']} {item['predicate']} {item['object']}"),
        *("certainty", "stated_by", "stated_at"),
        optional=("certainty", "stated_by", "stated_at"),
    )


@app.command
def approve(fact: FactName, /, *, common: RemoteOptions = REMOTE) -> int:
    """Approve a fact, so that answers use it."""
    return _decide(fact, "/approve", {}, "approved", common)


@app.command
def reject(fact: FactName, /, *, reason: str | None = None, common: RemoteOptions = REMOTE) -> int:
    """Reject a fact, also one that was approved before.

    Args:
        reason: Free text.
    """
    return _decide(fact, "/reject", {"reason": reason}, "rejected", common)


@app.command
def delete(fact: WholeFactName, /, *, yes: Yes = False, common: RemoteOptions = REMOTE) -> int:
    """Erase a fact permanently, with its text in the log and the answers that cite it."""
    return erase_by_name(FACTS, "fact", fact, yes, common)


def _decide(
    fact: str, action: str, body: dict[str, Any], decision: str, common: RemoteOptions
) -> int:
    receipt = post_by_name(FACTS, fact, action, body, common, stages=JUDGEMENT_STAGES)
    text = (
        decision
        if receipt["status"] == "applied"
        else f"accepted; {decision} once the workers have read it, see `anabranch facts list`"
    )
    return common.show(receipt, lambda: print(text))
