"""`anabranch audit`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from anabranch.cli.api_calls import get
from anabranch.cli.options import RemoteOptions
from anabranch.cli.output import print_next_page, print_table

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
    if common.is_json:
        common.print_result(page)
        return 0
    fields = ("occurred_at", "tenant", "actor", "action", "subject", "outcome")
    print_table(
        ("at", "tenant", "actor", "action", "subject", "outcome"),
        [[item[field] for field in fields] for item in page["items"]],
    )
    print_next_page(page["next"], quiet=common.quiet)
    return 0
