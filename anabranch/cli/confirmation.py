"""Confirmation prompts."""

from __future__ import annotations

import sys

from schemas.errors import ConfigurationError


def confirm(question: str) -> bool:
    """Prompt on stderr and return whether the answer is yes.

    Raises ConfigurationError at the end of stdin.
    """
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        print(file=sys.stderr)
        raise ConfigurationError(
            "No confirmation was given.",
            code="NOT_CONFIRMED",
            remedy="Add --yes to run without a terminal.",
        )
    return answer.strip().lower() in ("y", "yes")
