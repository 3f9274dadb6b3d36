"""Asking before something goes for good."""

from __future__ import annotations

import sys

from schemas.errors import ConfigurationError


def confirm(question: str) -> bool:
    """Asked on stderr: stdout is data. Raises ConfigurationError where nobody is there to answer."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        print(file=sys.stderr)
        raise ConfigurationError("nobody answered", code="NOT_CONFIRMED", remedy="Add --yes where there is no terminal to ask at.")
    return answer.strip().lower() in ("y", "yes")
