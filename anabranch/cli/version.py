"""`anabranch version`."""

from __future__ import annotations

from anabranch.cli.options import CommonOptions
from anabranch.config.version import get_program_version


def version(*, common: CommonOptions = CommonOptions()) -> int:  # noqa: B008
    """Print the version."""
    program_version = get_program_version()
    return common.show({"version": program_version}, lambda: print(program_version))
