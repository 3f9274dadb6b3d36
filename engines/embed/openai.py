"""Embedder on a server with the interface of OpenAI (Azure, vLLM, Qwen3-VL-Embedding) or Cohere.

Cohere's `POST /v2/embed` tells questions from passages by `input_type`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from engines.embed.states import Floats, normalize_rows
from engines.openai_server import OpenAIServer
from engines.resilience import ServerCallError
from engines.server_settings import ServerRetryPolicy, ServerSettings
from schemas.batching import map_parallel
from schemas.errors import PermanentError, TransientError
from schemas.ids import fingerprint
from schemas.ports.engines import QueryEmbedding, TextEmbedding, TokenSpans

VERSION = 1
PASSAGE_INSTRUCTION = "Represent the user's input."
QUERY_INSTRUCTION = "Retrieve passages that answer the user's question."
MIN_NORM, MAX_NORM = 1e-12, 1e18
INPUT_TYPES = {PASSAGE_INSTRUCTION: "search_document", QUERY_INSTRUCTION: "search_query"}
COHERE_BATCH = 96
"""Texts that Cohere accepts in one request."""
EmbedApi = Literal["openai", "cohere"]


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
        api: EmbedApi = "openai",
        batch_size: int = 64,
        max_parallel: int = 4,
        retry_policy: ServerRetryPolicy | None = None,
    ) -> None:
        self.model, self.dimension = settings.model, dimension
        self._api, self._path = api, "/embed" if api == "cohere" else "/embeddings"
        batch_size = min(batch_size, COHERE_BATCH) if api == "cohere" else batch_size
        self._uses_chat_format = settings.kind == "vllm" and "qwen3-vl" in settings.model.lower()
        instructions = [PASSAGE_INSTRUCTION, QUERY_INSTRUCTION] if self._uses_chat_format else []
        self.fingerprint = fingerprint(
            f"{api}-embeddings", VERSION, self.model, dimension, instructions
        )
        self._server = OpenAIServer(settings, retry_policy)
        # A request in chat format takes one text, so more of them run at once.
        self._batch_size, self._max_parallel = (
            (1, 8 * max_parallel) if self._uses_chat_format else (batch_size, max_parallel)
        )
        self._server_shortens = True

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        batches = (
            texts[start : start + self._batch_size]
            for start in range(0, len(texts), self._batch_size)
        )
        request = partial(self._request_vectors, instruction=PASSAGE_INSTRUCTION)
        batch_vectors = await map_parallel(request, batches, self._max_parallel)
        return [TextEmbedding(row.astype(np.float16)) for rows in batch_vectors for row in rows]

    async def embed_query(self, text: str) -> QueryEmbedding:
        return QueryEmbedding((await self._request_vectors([text], QUERY_INSTRUCTION))[0])

    async def locate_tokens(self, texts: Sequence[str]) -> list[TokenSpans]:
        return [np.zeros((0, 2), np.int64) for _ in texts]

    async def close(self) -> None:
        await self._server.close()

    async def _request_vectors(self, texts: Sequence[str], instruction: str) -> Floats:
        reply = await self._post_embeddings(self._build_body(texts, instruction))
        rows = _parse_vectors(
            _list_cohere_vectors(reply) if self._api == "cohere" else reply, len(texts)
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
        # OpenAI and Cohere reject an empty input.
        filled_texts = [text or " " for text in texts]
        if self._api == "cohere":
            return {
                "texts": filled_texts,
                "input_type": INPUT_TYPES[instruction],
                "embedding_types": ["float"],
                "truncate": "END",
            }
        if not self._uses_chat_format:
            return {"input": filled_texts, "encoding_format": "float"}
        parts = [("system", instruction), ("user", texts[0] or " ")]
        messages = [
            {"role": role, "content": [{"type": "text", "text": text}]} for role, text in parts
        ]
        # The reference prompt of Qwen3-VL-Embedding ends with the generation prompt.
        return {"messages": messages, "add_generation_prompt": True, "encoding_format": "float"}

    async def _post_embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if self._server_shortens:
            name = "output_dimension" if self._api == "cohere" else "dimensions"
            try:
                return await self._server.post(self._path, {**body, name: self.dimension}, "embed")
            # vLLM refuses `dimensions` for models that do not declare Matryoshka training, Cohere
            # `output_dimension` for those before v4.
            except PermanentError as error:
                if not any(word in error.detail.lower() for word in ("matryoshka", "dimension")):
                    raise
            self._server_shortens = False  # from now on vectors are cut here
        return await self._server.post(self._path, body, "embed")


def _list_cohere_vectors(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reply in OpenAI's shape; Cohere lists vectors by their type."""
    by_type = reply.get("embeddings")
    vectors = by_type.get("float") if isinstance(by_type, dict) else None
    rows = enumerate(vectors if isinstance(vectors, list) else [])
    return {"data": [{"index": index, "embedding": vector} for index, vector in rows]}


def _parse_vectors(reply: Mapping[str, Any], count: int) -> Floats:
    """Return the vectors [count, dimension] in the order of the request.

    Raises ServerCallError for missing and superfluous vectors, and TransientError for values that
    are no vectors: these may be a passing fault, but must not pause the stage forever if the model
    always returns them for an input.
    """
    try:
        vectors_by_index = {int(item["index"]): item["embedding"] for item in reply["data"]}
        rows = np.asarray([vectors_by_index[index] for index in range(count)], np.float32)
        if len(reply["data"]) != count:
            raise ValueError("vectors of other texts")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ServerCallError(
            f"The embedding server did not return {count} vectors.",
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
