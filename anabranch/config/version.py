"""Version of the program, and Python releases with known security faults."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version


def get_program_version() -> str:
    """Return the version of the installed distribution, else that of the sources."""
    try:
        return version("anabranch")
    except PackageNotFoundError:
        return "0.1.0"


@dataclass(frozen=True, slots=True)
class PythonAdvisory:
    """A fault of the standard library, and the first patch release without it by minor version."""

    identifier: str
    fault: str
    fixed_in: dict[tuple[int, int], int]


ADVISORIES = (
    PythonAdvisory("CVE-2024-0450", "zipfile: overlapping entries", {(3, 11): 8, (3, 12): 2}),
    PythonAdvisory("CVE-2023-52425", "expat: quadratic time", {(3, 11): 9, (3, 12): 3}),
    PythonAdvisory("CVE-2024-7592", "http.cookies: quadratic time", {(3, 11): 10, (3, 12): 6}),
    PythonAdvisory(
        "CVE-2025-6069", "html.parser: quadratic time", {(3, 11): 14, (3, 12): 12, (3, 13): 6}
    ),
)


def list_advisories(version: tuple[int, int, int] = sys.version_info[:3]) -> list[PythonAdvisory]:
    """List the advisories for a release. A distribution may have patched it all the same."""
    minor, patch = version[:2], version[2]
    return [advisory for advisory in ADVISORIES if patch < advisory.fixed_in.get(minor, 0)]


def get_safe_release(version: tuple[int, int, int] = sys.version_info[:3]) -> str:
    """Return the first release of the same minor version without these faults."""
    minor = version[:2]
    patch = max(advisory.fixed_in.get(minor, 0) for advisory in ADVISORIES)
    return f"{minor[0]}.{minor[1]}.{patch}"


def format_advisories(advisories: list[PythonAdvisory]) -> str:
    return "; ".join(f"{advisory.identifier} ({advisory.fault})" for advisory in advisories)


def warn_of_advisories() -> None:
    """Log the faults of this Python release, if there are any."""
    if advisories := list_advisories():
        # Here, since `anabranch version` needs neither.
        import platform

        import structlog

        structlog.get_logger(__name__).warning(
            "python_release_has_known_faults",
            release=platform.python_version(),
            advisories=[advisory.identifier for advisory in advisories],
            fixed_in=get_safe_release(),
        )
