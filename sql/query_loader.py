"""The SQL of this room: one statement a file in `queries/`, its first line a comment that says what it is for."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).with_name("queries")
INCLUDE_PATTERN = re.compile(r"\{(\w+)\}")


@cache
def load_query(name: str, **substitutions: int) -> str:
    """The text of `queries/<name>.sql`. `{other}` stands for the file of that name, or for one of `numbers` (a vector's dimension is part of its type)."""

    def inserted(match: re.Match[str]) -> str:
        return str(substitutions[match[1]]) if match[1] in substitutions else f"\n{load_query(match[1])}"

    return INCLUDE_PATTERN.sub(inserted, (FOLDER / f"{name}.sql").read_text())
