"""`anabranch audit`."""

from __future__ import annotations

from datetime import datetime

from anabranch.cli.api_calls import format_time, get
from anabranch.cli.options import FIRST_PAGE, PageOptions, RemoteOptions
from schemas.principals import AuditOutcome

DEFAULT = RemoteOptions()


def audit(
    *,
    search: str | None = None,
    actor: str | None = None,
    action: str | None = None,
    outcome: AuditOutcome | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    page: PageOptions = FIRST_PAGE,
    common: RemoteOptions = DEFAULT,
) -> int:
    """List administrative actions, the latest first.

    Operators see the actions of all tenants, or of one with --tenant.

    Parameters
    ----------
    search
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
    """
    found = get(
        "/v1/audit",
        common,
        text=search,
        actor=actor,
        action=action,
        outcome=outcome,
        **{"from": format_time(since), "to": format_time(until)},
        **page.to_query(),
    )
    return common.show_page(
        found, ("at", "occurred_at"), "tenant", "actor", "action", "subject", "outcome"
    )
