"""`anabranch audit`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from anabranch.cli.api_calls import get
from anabranch.cli.options import RemoteOptions

DEFAULT = RemoteOptions()


def audit(
    *,
    after: str | None = None,
    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=500))] = 50,
    common: RemoteOptions = DEFAULT,
) -> int:
    """List administrative actions, the latest first.

    Operators see the actions of all tenants, or of one with --tenant.

    Parameters
    ----------
    after
        Cursor printed with the previous page.
    limit
        Maximum number of actions.
    """
    page = get("/v1/audit", common, after=after, limit=limit)
    return common.show_page(
        page, ("at", "occurred_at"), "tenant", "actor", "action", "subject", "outcome"
    )
