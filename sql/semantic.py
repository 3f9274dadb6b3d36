"""Search semantically by cosine similarity: exact while there are few vectors, else by HNSW."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector

from schemas.ports.search import Hit
from sql.pool import Connection
from sql.query_loader import load_query
from sql.search_scope import SearchScope
from sql.vector_index import EXACT_BELOW


async def search_semantic(
    connection: Connection, scope: SearchScope, vector: NDArray[np.float32], k: int
) -> list[Hit]:
    """Return the best k hits. Raises ValueError if the vector has another dimension than the
    generation.
    """
    if scope.is_empty:
        return []
    vectors = await connection.fetchval(load_query("corpus_size"), scope.generation, None)
    is_exact = scope.listed_documents is not None or vectors < EXACT_BELOW
    query = (
        load_query("semantic_exact")
        if is_exact
        else load_query("semantic_near", dimension=len(vector))
    )
    rows = await connection.fetch(query, *scope.to_parameters(), HalfVector(vector), k)
    return [Hit(row["chunk_id"], row["document_id"], row["score"]) for row in rows]
