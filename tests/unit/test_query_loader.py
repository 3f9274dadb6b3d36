"""Every query has a purpose and a unique name, and is used."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import asyncpg
import pytest

from schemas.errors import DatabaseUnavailable, LogUnavailable
from sql.database import FOLDER, load_query, read_queries
from sql.errors import translate_database_errors, translate_log_errors
from sql.operations.erasure import COUNT_QUERIES

QUERIES = read_queries(FOLDER)
SOURCES = "\n".join(path.read_text() for path in FOLDER.parent.rglob("*.py"))


@pytest.mark.parametrize("name", QUERIES)
def test_query_has_purpose_and_is_used(name: str) -> None:
    assert re.match(r"-- [A-Z`].{10,}\n", QUERIES[name]), name
    is_included = any(f"{{{name}}}" in text for text in QUERIES.values())
    call = rf"""(load_query|_?fetch\w*|execute\w*)\((\s*[\w.]+,)?\s*["']{name}["'][,)]"""
    is_called = name in COUNT_QUERIES.values() or re.search(call, SOURCES)
    assert is_included or is_called, name


def test_includes_and_dimensions_are_substituted() -> None:
    text = load_query("semantic_near", dimension=384)
    assert "halfvec(384)" in text and "d.collection = any ($5)" in text and "{" not in text


def test_unknown_query_is_refused() -> None:
    with pytest.raises(ValueError, match="Unknown query 'documnets'"):
        load_query("documnets")


def test_two_queries_of_one_name_are_refused(tmp_path: Path) -> None:
    for file in ("first.sql", "second.sql"):
        (tmp_path / file).write_text("-- name: count_rows\n-- Number of rows.\nselect count(*)\n")
    with pytest.raises(ValueError, match="Two queries are named 'count_rows'"):
        read_queries(tmp_path)


# Transient database errors, and errors that must not be taken for them.

CONNECTION_LOST = asyncpg.InterfaceError("connection is closed")


async def fail_on_cancellation(by: BaseException) -> None:
    """A statement whose cancellation loses the connection."""
    with translate_database_errors():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise by  # noqa: B904


@pytest.mark.parametrize(
    "error",
    [
        CONNECTION_LOST,
        ConnectionResetError("gone"),
        asyncpg.InternalClientError("got result for unknown protocol state"),
    ],
)
async def test_cancellation_survives_statement_errors(error: Exception) -> None:
    task = asyncio.create_task(fail_on_cancellation(error))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_statement_timeout_is_database_unavailable() -> None:
    with pytest.raises(DatabaseUnavailable), translate_database_errors():
        async with asyncio.timeout(0):
            await asyncio.Event().wait()


async def test_lost_connection_without_own_cancellation_is_transient() -> None:
    waited = asyncio.get_running_loop().create_future()
    waited.cancel()
    with pytest.raises(LogUnavailable), translate_log_errors():
        try:
            await waited
        except asyncio.CancelledError:
            raise CONNECTION_LOST  # noqa: B904


async def test_programming_error_is_not_translated() -> None:
    with pytest.raises(asyncpg.InterfaceError), translate_database_errors():
        raise asyncpg.InterfaceError("the server expects 2 arguments for this query, 1 was passed")
