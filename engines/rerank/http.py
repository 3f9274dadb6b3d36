"""Cross-encoder behind a `/rerank` endpoint, as served by vLLM (Qwen3-VL-Reranker) and Cohere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from engines.openai_server import OpenAIServer
from engines.resilience import ServerCallError
from engines.server_settings import ServerRetryPolicy, ServerSettings
from schemas.ids import fingerprint
from schemas.ports.engines import QueryEmbedding, RerankPassage

VERSION = 1
THRESHOLD = 0.6


class HttpReranker:
    """Reranker with scores between 0 and 1 that replace the fused ones.

    The server truncates long passages.
    """

    role: Literal["added", "replaces"] = "replaces"
    threshold = THRESHOLD

    def __init__(
        self, settings: ServerSettings, *, retry_policy: ServerRetryPolicy | None = None
    ) -> None:
        self.name = settings.model
        self.fingerprint = fingerprint("rerank", VERSION, settings.model)
        self._server = OpenAIServer(settings, retry_policy)

    async def rerank(
        self, question: str, query: QueryEmbedding | None, passages: Sequence[RerankPassage]
    ) -> list[float]:
        if not passages:
            return []
        body: dict[str, Any] = {
            "query": question,
            "documents": [passage.text for passage in passages],
            "top_n": len(passages),
        }
        if self._server.kind == "vllm":
            # Truncate to the model's maximum; vLLM rejects long passages by default.
            body["truncate_prompt_tokens"] = -1
        return _parse_scores(await self._server.post("/rerank", body), len(passages))

    async def close(self) -> None:
        await self._server.close()


def _parse_scores(reply: Mapping[str, Any], count: int) -> list[float]:
    try:
        scores_by_index = {
            int(item["index"]): float(item["relevance_score"]) for item in reply["results"]
        }
        scores = [scores_by_index[index] for index in range(count)]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ServerCallError(
            f"The rerank server returned fewer than {count} scores.", code="ENGINE_BROKEN_ANSWER"
        ) from error
    if not all(map(math.isfinite, scores)):
        raise ServerCallError(
            "The rerank server returned NaN or infinite scores.", code="ENGINE_BROKEN_ANSWER"
        )
    return scores
