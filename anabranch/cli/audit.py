"""`anabranch audit`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from anabranch.cli.api_calls import get
from anabranch.cli.options import RemoteOptions
from anabranch.cli.output import print_stderr, print_table

DEFAULT = RemoteOptions()


def audit(*, after: str | None = None, limit: Annotated[int, Parameter(validator=Number(gte=1, lte=500))] = 50, common: RemoteOptions = DEFAULT) -> int:
    """List administrative acts, the latest first: who did what to what, and how it ended.

    An operator sees those of all tenants, or with --tenant those of one.

    Parameters
    ----------
    after
        Continue behind the page before.
    limit
        Acts on one page.
    """
    page = get("/v1/audit", common, after=after, limit=limit)
    if common.is_json:
        common.print_result(page)
        return 0
    rows = [(act["at"], act["tenant"], act["who"], act["what"], act["subject"], act["outcome"]) for act in page["items"]]
    print_table(("at", "tenant", "who", "what", "subject", "outcome"), rows)
    if page["next"]:
        print_stderr(f"more: --after {page['next']}", quiet=common.quiet)
    return 0
