"""`anabranch version`."""

from __future__ import annotations

from anabranch.cli.options import Common
from anabranch.version import program_version


def version(*, common: Common = Common()) -> int:  # noqa: B008
    """Print the version."""
    if common.json:
        common.show({"version": program_version()})
    else:
        print(program_version())
    return 0
