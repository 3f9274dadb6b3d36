"""`anabranch version`."""

from __future__ import annotations

from anabranch.cli.options import CommonOptions
from anabranch.config.version import get_program_version


def version(*, common: CommonOptions = CommonOptions()) -> int:  # noqa: B008
    """Print the version."""
    if common.is_json:
        common.print_result({"version": get_program_version()})
    else:
        print(get_program_version())
    return 0
