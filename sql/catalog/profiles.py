"""The profiles of the last reload, from which API processes learn of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sql.pool import Pool, fetch_row, fetch_value


class PgReloadedProfiles:
    """Files of the last reload. Every method may raise DatabaseUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def fetch_number(self) -> int:
        return await fetch_value(self._pool, "last_profile_reload") or 0

    async def fetch_newer(self, number: int) -> tuple[int, dict[str, Any]] | None:
        """Return number and files of the last reload, if it came after reload `number`."""
        row = await fetch_row(self._pool, "newer_profiles", number)
        return (row["number"], row["files"]) if row else None

    async def store(self, sha256: str, files: Mapping[Any, Any]) -> int:
        """Store the files of a reload, and return its number."""
        return int(await fetch_value(self._pool, "store_profiles", sha256, dict(files)))
