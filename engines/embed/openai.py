"""Vectors from an OpenAI-compatible server: OpenAI, Azure, vLLM (Qwen3-VL-Embedding among others)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engines.embed.states import unit_rows
from engines.openai_server import OpenAIServer
from engines.resilience import Patience, Unanswered
from engines.server_settings import ServerSettings
from schemas.errors import PermanentError, TransientError
from schemas.ids import fingerprint
from schemas.ports.engines import Embedded, EmbeddedQuery

VERSION = 1
PASSAGE_INSTRUCTION = "Represent the user's input."
QUERY_INSTRUCTION = "Retrieve passages that answer the user's question."
SHORTEST, LONGEST = 1e-12, 1e18
Floats = NDArray[np.float32]


class OpenAIEmbedder:
    """Batches of `batch` texts, `parallel` requests at once. Vectors are unit vectors of `dimension`; where the server refuses to shorten them, they are cut and
    normalised here, which gives the same vector for a Matryoshka model (Kusupati et al. 2022)."""

    state_dimension = 0

    def __init__(self, settings: ServerSettings, *, dimension: int, batch: int = 64, parallel: int = 4, patience: Patience | None = None) -> None:
        self.model, self.dimension = settings.model, dimension
        self._by_messages = settings.kind == "vllm" and "qwen3-vl" in settings.model.lower()
        instructions = [PASSAGE_INSTRUCTION, QUERY_INSTRUCTION] if self._by_messages else []
        self.fingerprint = fingerprint("openai-embeddings", VERSION, self.model, dimension, instructions)
        self._server = OpenAIServer(settings, patience)
        self._batch, self._parallel = (1, 8 * parallel) if self._by_messages else (batch, parallel)
        self._server_shortens = True

    async def embed(self, texts: Sequence[str]) -> list[Embedded]:
        gate = asyncio.Semaphore(self._parallel)
        batches = [texts[start : start + self._batch] for start in range(0, len(texts), self._batch)]
        answers = await asyncio.gather(*(self._within(gate, batch) for batch in batches))
        return [Embedded(row.astype(np.float16)) for rows in answers for row in rows]

    async def embed_query(self, text: str) -> EmbeddedQuery:
        return EmbeddedQuery((await self._vectors([text], QUERY_INSTRUCTION))[0])

    async def close(self) -> None:
        await self._server.close()

    async def _within(self, gate: asyncio.Semaphore, batch: Sequence[str]) -> Floats:
        async with gate:
            return await self._vectors(batch, PASSAGE_INSTRUCTION)

    async def _vectors(self, texts: Sequence[str], instruction: str) -> Floats:
        rows = _rows(await self._asked(self._body(texts, instruction)), len(texts))
        if not self._server_shortens:
            rows = rows[:, : self.dimension]
        if rows.shape[1] != self.dimension:
            raise Unanswered(
                f"{self.model} gives vectors of {rows.shape[1]} dimensions; this index has {self.dimension}.",
                code="ENGINE_WRONG_DIMENSION",
                remedy="Set ANABRANCH_EMBED__DIMENSION to what the model gives, in a data folder of its own.",
            )
        return unit_rows(rows)

    def _body(self, texts: Sequence[str], instruction: str) -> dict[str, Any]:
        if not self._by_messages:
            return {"input": [text or " " for text in texts], "encoding_format": "float"}
        parts = [("system", instruction), ("user", texts[0] or " ")]
        messages = [{"role": role, "content": [{"type": "text", "text": text}]} for role, text in parts]
        return {"messages": messages, "add_generation_prompt": True, "encoding_format": "float"}

    async def _asked(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if not self._server_shortens:
            return await self._server.post("/embeddings", body)
        try:
            return await self._server.post("/embeddings", {**body, "dimensions": self.dimension})
        except PermanentError as error:
            if "matryoshka" not in error.detail.lower() and "dimensions" not in error.detail.lower():
                raise
        self._server_shortens = False
        return await self._server.post("/embeddings", body)


def _directed(rows: Floats) -> bool:
    """Neither too long to be measured nor too short to say where it points."""
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
    return bool(((lengths > SHORTEST) & (lengths < LONGEST)).all())


def _rows(reply: Mapping[str, Any], count: int) -> Floats:
    """[count, dimension] in the order asked, whatever the order of the answer. Raises TransientError for what is no vector: a server that is unwell may say
    better later, one that always says so of this input is not asked for ever."""
    try:
        found = {int(item["index"]): item["embedding"] for item in reply["data"]}
        rows = np.asarray([found[place] for place in range(count)], np.float32)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Unanswered(f"The embedding server left out some of {count} vectors.", code="ENGINE_BROKEN_ANSWER") from error
    if rows.ndim != 2 or not np.isfinite(rows).all() or not _directed(rows):
        raise TransientError(
            "The embedding server answered with NaN, infinite or empty vectors.",
            code="ENGINE_BROKEN_ANSWER",
            remedy="Look into the model server's log; some models overflow in half precision.",
        )
    return rows
