"""Load the named SQL statements of `queries/`, one file for each aggregate.

A statement is a line `-- name: <name>`, a comment line with its purpose, and its text. aiosql does
not fit: it has no includes, and its generated methods have no types.

Only statements that cannot be written down in advance stay in Python: session commands (`set`,
`begin`, `lock table`, advisory locks), DDL and inserts that are built from identifiers, and the
bookkeeping of migrations, which runs before the schema exists.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).with_name("queries")
NAME_PATTERN = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
INCLUDE_PATTERN = re.compile(r"\{(\w+)\}")


@cache
def load_query(name: str, **substitutions: int | str) -> str:
    """Return the text of a query.

    `{name}` is replaced by a substitution, or else by the query of that name. Vector dimensions and
    table names are substituted because they cannot be parameters.
    """
    queries = read_queries(FOLDER)
    if name not in queries:
        raise ValueError(f"Unknown query '{name}'. Add it to a file in {FOLDER}.")

    def expand(match: re.Match[str]) -> str:
        return (
            str(substitutions[match[1]])
            if match[1] in substitutions
            # On a new line: an included query begins with a comment line.
            else f"\n{load_query(match[1])}"
        )

    return INCLUDE_PATTERN.sub(expand, queries[name])


@cache
def read_queries(folder: Path) -> dict[str, str]:
    """Read the queries of a folder by name."""
    queries: dict[str, str] = {}
    for path in sorted(folder.glob("*.sql")):
        _, *parts = NAME_PATTERN.split(path.read_text())
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            if name in queries:
                raise ValueError(f"Two queries are named '{name}'. Rename the one in {path.name}.")
            queries[name] = text.rstrip()
    return queries
