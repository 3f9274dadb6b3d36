"""Embedder on an OpenAI-compatible server: OpenAI, Azure, vLLM (including Qwen3-VL-Embedding)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engines.embed.states import Floats, normalize_rows
from engines.openai_server import OpenAIServer
from engines.resilience import ServerCallError
from engines.server_settings import ServerRetryPolicy, ServerSettings
from schemas.errors import PermanentError, TransientError
from schemas.ids import fingerprint
from schemas.ports.engines import QueryEmbedding, TextEmbedding, TokenSpans

VERSION = 1
PASSAGE_INSTRUCTION = "Represent the user's input."
QUERY_INSTRUCTION = "Retrieve passages that answer the user's question."
MIN_NORM, MAX_NORM = 1e-12, 1e18


class OpenAIEmbedder:
    """Embedder that sends batches of `batch_size` texts, `max_parallel` at once.

    Returns unit vectors of `dimension`. Where the server refuses to shorten them, they are cut and
    normalized here, which gives the same vectors for a Matryoshka model (Kusupati et al. 2022).
    """

    state_dimension = 0

    def __init__(
        self,
        settings: ServerSettings,
        *,
        dimension: int,
        batch_size: int = 64,
        max_parallel: int = 4,
        retry_policy: ServerRetryPolicy | None = None,
    ) -> None:
        self.model, self.dimension = settings.model, dimension
        self._uses_chat_format = settings.kind == "vllm" and "qwen3-vl" in settings.model.lower()
        instructions = [PASSAGE_INSTRUCTION, QUERY_INSTRUCTION] if self._uses_chat_format else []
        self.fingerprint = fingerprint(
            "openai-embeddings", VERSION, self.model, dimension, instructions
        )
        self._server = OpenAIServer(settings, retry_policy)
        # A request in chat format takes one text, so more of them run at once.
        self._batch_size, self._max_parallel = (
            (1, 8 * max_parallel) if self._uses_chat_format else (batch_size, max_parallel)
        )
        self._server_shortens = True

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        semaphore = asyncio.Semaphore(self._max_parallel)
        batches = [
            texts[start : start + self._batch_size]
            for start in range(0, len(texts), self._batch_size)
        ]

        async def embed_batch(batch: Sequence[str]) -> Floats:
            async with semaphore:
                return await self._request_vectors(batch, PASSAGE_INSTRUCTION)

        batch_vectors = await asyncio.gather(*map(embed_batch, batches))
        return [TextEmbedding(row.astype(np.float16)) for rows in batch_vectors for row in rows]

    async def embed_query(self, text: str) -> QueryEmbedding:
        return QueryEmbedding((await self._request_vectors([text], QUERY_INSTRUCTION))[0])

    async def locate_tokens(self, texts: Sequence[str]) -> list[TokenSpans]:
        return [np.zeros((0, 2), np.int64) for _ in texts]

    async def close(self) -> None:
        await self._server.close()

    async def _request_vectors(self, texts: Sequence[str], instruction: str) -> Floats:
        rows = _parse_vectors(
            await self._post_embeddings(self._build_body(texts, instruction)), len(texts)
        )
        if not self._server_shortens:
            rows = rows[:, : self.dimension]
        if rows.shape[1] != self.dimension:
            raise ServerCallError(
                f"{self.model} returns vectors of {rows.shape[1]} dimensions; this index has "
                f"{self.dimension}.",
                code="ENGINE_WRONG_DIMENSION",
                remedy=f"Set ANABRANCH_EMBED__DIMENSION={rows.shape[1]} with another data folder.",
            )
        return normalize_rows(rows)

    def _build_body(self, texts: Sequence[str], instruction: str) -> dict[str, Any]:
        if not self._uses_chat_format:
            # OpenAI rejects an empty input.
            return {"input": [text or " " for text in texts], "encoding_format": "float"}
        parts = [("system", instruction), ("user", texts[0] or " ")]
        messages = [
            {"role": role, "content": [{"type": "text", "text": text}]} for role, text in parts
        ]
        # The reference prompt of Qwen3-VL-Embedding ends with the generation prompt.
        return {"messages": messages, "add_generation_prompt": True, "encoding_format": "float"}

    async def _post_embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if not self._server_shortens:
            return await self._server.post("/embeddings", body, "embed")
        try:
            shortened = {**body, "dimensions": self.dimension}
            return await self._server.post("/embeddings", shortened, "embed")
        # vLLM refuses `dimensions` for models that do not declare Matryoshka training.
        except PermanentError as error:
            if (
                "matryoshka" not in error.detail.lower()
                and "dimensions" not in error.detail.lower()
            ):
                raise
        self._server_shortens = False  # from now on vectors are cut here
        return await self._server.post("/embeddings", body, "embed")


def _parse_vectors(reply: Mapping[str, Any], count: int) -> Floats:
    """Return the vectors [count, dimension] in the order of the request.

    Raises ServerCallError for missing vectors, and TransientError for values that are no vectors:
    these may be a passing fault, but must not pause the stage forever if the model always returns
    them for an input.
    """
    try:
        vectors_by_index = {int(item["index"]): item["embedding"] for item in reply["data"]}
        rows = np.asarray([vectors_by_index[index] for index in range(count)], np.float32)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ServerCallError(
            f"The embedding server returned fewer than {count} vectors.",
            code="ENGINE_BROKEN_ANSWER",
        ) from error
    # In float32 the squares of large values would overflow.
    lengths = np.linalg.norm(rows.astype(np.float64), axis=-1)
    # NaN and infinity are in no range either.
    if rows.ndim != 2 or not ((lengths > MIN_NORM) & (lengths < MAX_NORM)).all():
        raise TransientError(
            "The embedding server returned NaN, infinite or empty vectors.",
            code="ENGINE_BROKEN_ANSWER",
            remedy="Check the model server's log; some models overflow in half precision.",
        )
    return rows
