"""Translate Postgres errors into the project's errors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from schemas.errors import AnabranchError, DatabaseUnavailable, LogUnavailable

# Conditions that end without a change of ours: a lost or refused connection, a server that starts
# or stops.
TRANSIENT_ERRORS = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
    asyncpg.ObjectInUseError,
    # asyncpg raises it when a connection is lost during its handshake.
    asyncpg.InternalClientError,
)
LOCK_TIMEOUT_CODE, DISK_FULL_CODE = "TABLES_LOCKED", "NO_SPACE"
CONNECTION_LOST_MESSAGES = (
    "connection is closed",
    "connection was closed",
    "connection is lost",
    "pool is clos",
    "connection has been released",
)


@contextmanager
def translate_database_errors() -> Iterator[None]:
    """Raise transient errors as DatabaseUnavailable. Other errors are bugs and pass unchanged."""
    try:
        yield
    except AnabranchError:
        raise
    except asyncpg.LockNotAvailableError as error:
        raise DatabaseUnavailable(
            "Timed out waiting for a lock that another transaction holds.",
            code=LOCK_TIMEOUT_CODE,
            remedy="Run `anabranch doctor` to see which transaction holds it, then try again.",
        ) from error
    # A subclass of InsufficientResourcesError, hence before the transient errors.
    except asyncpg.DiskFullError as error:
        raise DatabaseUnavailable(
            "The disk of Postgres is full.",
            code=DISK_FULL_CODE,
            remedy="Free disk space in the data folder of Postgres.",
        ) from error
    except (*TRANSIENT_ERRORS, asyncpg.InterfaceError, TimeoutError) as error:
        if _is_caused_by_cancellation(error):
            raise asyncio.CancelledError from error
        # asyncpg raises InterfaceError for lost connections and for misuse; only the text differs.
        if isinstance(error, asyncpg.InterfaceError) and not any(
            words in str(error) for words in CONNECTION_LOST_MESSAGES
        ):
            raise
        raise DatabaseUnavailable(
            f"Postgres is unavailable: {error or type(error).__name__}"
        ) from error


def _is_caused_by_cancellation(error: BaseException | None) -> bool:
    """Return whether an error stems from the cancellation of the current task.

    Cancelling a statement may surface as a lost connection. If that became DatabaseUnavailable, a
    task that retries could never be cancelled. A timeout is built on cancellation as well, but does
    not cancel the task.
    """
    while error is not None and not isinstance(error, TimeoutError):
        if isinstance(error, asyncio.CancelledError):
            return (task := asyncio.current_task()) is not None and task.cancelling() > 0
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def translate_log_errors() -> Iterator[None]:
    """Raise transient errors of the log's table as LogUnavailable."""
    try:
        with translate_database_errors():
            yield
    except DatabaseUnavailable as error:
        has_own_code = error.code in (LOCK_TIMEOUT_CODE, DISK_FULL_CODE)
        raise (
            LogUnavailable(error.detail, code=error.code, remedy=error.remedy)
            if has_own_code
            else LogUnavailable(error.detail)
        ) from error
