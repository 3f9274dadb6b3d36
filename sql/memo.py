"""What engines have answered, so that asking again costs nothing and gives the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schemas.ports.ledger import MemoKey
from sql.errors import database_errors
from sql.pool import Pool
from sql.statements import statement


class PgMemo:
    """Memo over the table `memo`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def recall(self, keys: Sequence[MemoKey]) -> Mapping[MemoKey, bytes]:
        if not keys:
            return {}
        with database_errors():
            rows = await self._pool.fetch(statement("recall"), *_columns(keys))
        return {keys[row["n"] - 1]: row["answer"] for row in rows}

    async def known(self, keys: Sequence[MemoKey]) -> int:
        """How many of these different questions have an answer."""
        with database_errors():
            return int(await self._pool.fetchval(statement("known"), *_columns(keys)))

    async def store(self, answers: Mapping[MemoKey, bytes]) -> None:
        if answers:
            with database_errors():
                await self._pool.execute(statement("remember"), *_columns(list(answers)), list(answers.values()))


def _columns(keys: Sequence[MemoKey]) -> tuple[list[object], ...]:
    return ([key.tenant for key in keys], [key.document_id for key in keys], [key.engine for key in keys], [key.input_sha256 for key in keys])
