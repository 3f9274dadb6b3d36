"""Cross-encoder on a server, behind `/rerank` or `/score`.

`/rerank` is the request of Cohere, Jina and vLLM, `/score` that of vLLM alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Literal

from engines.openai_server import OpenAIServer
from engines.resilience import ServerCallError
from engines.server_settings import ServerRetryPolicy, ServerSettings
from schemas.batching import map_parallel
from schemas.ids import fingerprint
from schemas.ports.engines import QueryEmbedding, RerankPassage, RerankScore, TokenWeighting

VERSION = 2
THRESHOLD = 0.6
BATCH = 64
PARALLEL = 4
SEPARATOR_TOKENS = 4
"""Tokens that a tokenizer adds around question and passage, such as [CLS] and [SEP]."""


class HttpReranker:
    """Reranker with scores between 0 and 1 that replace the fused ones.

    Passages are sent in batches, several at a time; one that fails fails them all. The server
    truncates long passages.
    """

    role: Literal["added", "replaces"] = "replaces"
    threshold = THRESHOLD

    def __init__(
        self,
        settings: ServerSettings,
        *,
        api: Literal["rerank", "score"] = "rerank",
        batch: int = BATCH,
        parallel: int = PARALLEL,
        retry_policy: ServerRetryPolicy | None = None,
    ) -> None:
        self.name = settings.model
        self.fingerprint = fingerprint("rerank", VERSION, api, settings.model)
        self._api, self._batch, self._parallel = api, batch, parallel
        self._server = OpenAIServer(settings, retry_policy)

    def count_requests(self, passages_count: int) -> int:
        return math.ceil(passages_count / self._batch)

    async def rerank(
        self,
        question: str,
        query: QueryEmbedding | None,
        passages: Sequence[RerankPassage],
        weighting: TokenWeighting | None = None,
    ) -> list[RerankScore]:
        texts = [passage.text for passage in passages]
        batches = (
            texts[start : start + self._batch] for start in range(0, len(texts), self._batch)
        )
        scores = await map_parallel(partial(self._score, question), batches, self._parallel)
        return [RerankScore(value, value) for value in chain(*scores)]

    async def _score(self, question: str, texts: Sequence[str]) -> list[float]:
        # Truncate to the model's maximum; vLLM rejects long passages by default.
        options = {"truncate_prompt_tokens": -1} if self._server.kind == "vllm" else {}
        if self._api == "score":
            # The names that every version takes; newer ones also take `queries` and `documents`.
            body = {"text_1": question, "text_2": list(texts), **options}
            reply = await self._post("/score", body, question, texts)
            return _parse_scores(reply, "data", "score", texts)
        body = {"query": question, "documents": list(texts), "top_n": len(texts), **options}
        reply = await self._post("/rerank", body, question, texts)
        return _parse_scores(reply, "results", "relevance_score", texts)

    async def _post(
        self, path: str, body: Mapping[str, Any], question: str, texts: Sequence[str]
    ) -> dict[str, Any]:
        # A cross-encoder reads the question once more with each passage.
        repeated = len(texts) * (len(question.encode()) + SEPARATOR_TOKENS)
        return await self._server.post(path, body, "rerank", extra_input_tokens=repeated)

    async def close(self) -> None:
        await self._server.close()


def _parse_scores(
    reply: Mapping[str, Any], list_name: str, score_name: str, texts: Sequence[str]
) -> list[float]:
    try:
        scores_by_index = {int(item["index"]): float(item[score_name]) for item in reply[list_name]}
        scores = [scores_by_index[index] for index in range(len(texts))]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ServerCallError(
            f"The rerank server returned fewer than {len(texts)} scores.",
            code="ENGINE_BROKEN_ANSWER",
        ) from error
    if not all(map(math.isfinite, scores)):
        raise ServerCallError(
            "The rerank server returned NaN or infinite scores.", code="ENGINE_BROKEN_ANSWER"
        )
    return scores
