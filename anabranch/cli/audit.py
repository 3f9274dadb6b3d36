"""`anabranch audit`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from anabranch.cli.api_calls import format_time, get
from anabranch.cli.options import RemoteOptions
from schemas.principals import AuditOutcome

DEFAULT = RemoteOptions()


def audit(
    *,
    text: str | None = None,
    actor: str | None = None,
    action: str | None = None,
    outcome: AuditOutcome | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    after: str | None = None,
    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=500))] = 50,
    common: RemoteOptions = DEFAULT,
) -> int:
    """List administrative actions, the latest first.

    Operators see the actions of all tenants, or of one with --tenant.

    Parameters
    ----------
    text
        Only actions with this text in any field.
    actor
        Only actions of this caller, such as `local` or `key:<key id>`.
    action
        Only this action, such as `source.added`.
    outcome
        Only actions with this outcome.
    since
        Only actions at this time or later.
    until
        Only actions before this time.
    after
        Cursor printed with the previous page.
    limit
        Maximum number of actions.
    """
    page = get(
        "/v1/audit",
        common,
        text=text,
        actor=actor,
        action=action,
        outcome=outcome,
        **{"from": format_time(since), "to": format_time(until)},
        after=after,
        limit=limit,
    )
    return common.show_page(
        page, ("at", "occurred_at"), "tenant", "actor", "action", "subject", "outcome"
    )
