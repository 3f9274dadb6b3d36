"""Embedder of a generation that another version of this program embedded."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.generations import Generation
from schemas.ports.engines import QueryEmbedding, TextEmbedding
from services.index_comparison import make_outdated_error


class OutdatedEmbedder:
    """Raise GenerationMismatch with code GENERATION_OUTDATED: this program's vectors cannot be
    compared with the generation's.
    """

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        embed = generation.config.embed
        self.model, self.dimension, self.state_dimension, self.fingerprint = (
            embed.model,
            embed.dimension,
            embed.state_dimension,
            embed.fingerprint,
        )

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        raise make_outdated_error(self._generation, ["embed"])

    async def embed_query(self, text: str) -> QueryEmbedding:
        raise make_outdated_error(self._generation, ["embed"])
