"""Load SQL statements: one per file in `queries/`, whose first line is a comment with its purpose."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).with_name("queries")
INCLUDE_PATTERN = re.compile(r"\{(\w+)\}")


@cache
def load_query(name: str, **substitutions: int) -> str:
    """Return the text of `queries/<name>.sql`.

    `{name}` is replaced by a substitution, or else by the query of that name. Vector dimensions are
    substituted because they are part of a type and cannot be parameters.
    """

    def expand(match: re.Match[str]) -> str:
        return (
            str(substitutions[match[1]])
            if match[1] in substitutions
            else f"\n{load_query(match[1])}"
        )

    return INCLUDE_PATTERN.sub(expand, (FOLDER / f"{name}.sql").read_text())
