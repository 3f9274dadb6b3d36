"""Postgres' errors by what happens next."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from schemas.errors import AnabranchError, DatabaseUnavailable, LogUnavailable

# What passes by itself: a lost or refused connection, a server that starts or stops, a full disk.
TRANSIENT_ERRORS = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
    asyncpg.ObjectInUseError,
    # What a connection that is cut during its own set-up raises.
    asyncpg.InternalClientError,
)
LOCK_TIMEOUT_CODE, DISK_FULL_CODE = "TABLES_LOCKED", "NO_SPACE"
CONNECTION_LOST_MESSAGES = ("connection is closed", "connection was closed", "connection is lost", "pool is clos", "connection has been released")


@contextmanager
def translate_database_errors() -> Iterator[None]:
    """Turn what passes by itself into DatabaseUnavailable; anything else is a bug and stays what it is."""
    try:
        yield
    except AnabranchError:
        raise
    except asyncpg.LockNotAvailableError as error:
        raise DatabaseUnavailable(
            "another transaction holds a lock that this waited for, for longer than it may",
            code=LOCK_TIMEOUT_CODE,
            remedy="`anabranch doctor` names who holds it; try again when it is over.",
        ) from error
    except asyncpg.DiskFullError as error:
        raise DatabaseUnavailable("the disk of Postgres is full", code=DISK_FULL_CODE, remedy="Free disk space where the data of Postgres lie.") from error
    except (*TRANSIENT_ERRORS, asyncpg.InterfaceError, TimeoutError) as error:
        if _is_caused_by_cancellation(error):
            raise asyncio.CancelledError from error
        if isinstance(error, asyncpg.InterfaceError) and not any(words in str(error) for words in CONNECTION_LOST_MESSAGES):
            raise
        raise DatabaseUnavailable(f"Postgres did not answer: {error or type(error).__name__}") from error


def _is_caused_by_cancellation(error: BaseException | None) -> bool:
    """A statement that is interrupted may fail with a connection that is lost by that: its task stays cancelled, for nobody could stop one that waits for Postgres
    again and again. A time-out is made of a cancellation too, and is none of the task's own."""
    while error is not None and not isinstance(error, TimeoutError):
        if isinstance(error, asyncio.CancelledError):
            return (task := asyncio.current_task()) is not None and task.cancelling() > 0
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def translate_log_errors() -> Iterator[None]:
    """The same for the log's own table: what passes becomes LogUnavailable."""
    try:
        with translate_database_errors():
            yield
    except DatabaseUnavailable as error:
        has_own_code = error.code in (LOCK_TIMEOUT_CODE, DISK_FULL_CODE)
        raise LogUnavailable(error.detail, code=error.code, remedy=error.remedy) if has_own_code else LogUnavailable(error.detail) from error
