"""The semantic channel: cosine similarity of stored vectors, exact while they are few."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector

from schemas.ports.search import Hit
from sql.pool import Connection
from sql.scope import Scope
from sql.statements import statement
from sql.vector_index import EXACT_BELOW


async def search(connection: Connection, scope: Scope, vector: NDArray[np.float32], k: int) -> list[Hit]:
    """Raises ValueError for a vector that is not of the generation's dimension."""
    if scope.empty:
        return []
    vectors = await connection.fetchval(statement("corpus_size"), scope.generation, None)
    exact = scope.few is not None or vectors < EXACT_BELOW
    query = statement("semantic_exact") if exact else statement("semantic_near", dimension=len(vector))
    rows = await connection.fetch(query, *scope.parameters(), HalfVector(vector), k)
    return [Hit(row["chunk_id"], row["document_id"], row["score"]) for row in rows]
