"""The extractive answer: quoted, never written. A lead quote with the asked-for value marked, and at most two more.

Sentences are chosen by MaxSim + .5 × the share of the question's words they hold, both brought to 0..1 over the sentences.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from retrieval.answer.answer_type import detect_answer_type, find_value, highlight_value
from retrieval.answer.citations import build_citation
from retrieval.answer.drafts import AnswerDraft, DraftSentence
from retrieval.answer.quote_candidates import QuoteCandidate
from retrieval.answer.support import extract_word_keys
from retrieval.query_plan import QueryPlan
from retrieval.words import extract_content_words, stem_word
from schemas.errors import AnabranchError
from schemas.ids import content_id
from schemas.ports.engines import Embedder, QueryEmbedding, Reranker, RerankPassage

FloatArray = NDArray[np.float64]
ScoreCloseness = Callable[[Sequence[QuoteCandidate]], Awaitable[FloatArray | None]]
"""How close each sentence is to the question; None where no engine can tell."""

MODEL = "extractive"
MAX_EMBEDDED_SENTENCES = 24
"""Sentences that are embedded, about 700 tokens: a third of a second on one core."""
LEXICAL_WEIGHT = 0.5
VALUE_BONUS = 0.15
RANK_PENALTY = 0.1
"""Taken off for each context before the sentence's own, up to three: the better passage is the likelier place."""
MAX_QUOTES = 3
MIN_SUPPORT_SHARE = 0.75
"""Share of the lead's score that a further quote must reach."""
_QUOTED_NOTE = "Quoted from the documents; no language model wrote this."


async def extract_answer(
    candidates: Sequence[QuoteCandidate], plan: QueryPlan, query: QueryEmbedding | None, embedder: Embedder, reranker: Reranker | None, timeout_s: float
) -> AnswerDraft:
    """After `timeout_s` without an answer of the engines the words alone choose."""
    has_engine_failure = False

    async def look(offered: Sequence[QuoteCandidate]) -> FloatArray | None:
        nonlocal has_engine_failure
        try:
            async with asyncio.timeout(timeout_s):
                return await compute_closeness(offered, plan.question, query, embedder, reranker)
        except (AnabranchError, TimeoutError):
            has_engine_failure = True
            return None

    return replace(await compose_quoted_answer(candidates, plan, look), has_engine_failure=has_engine_failure)


async def compose_quoted_answer(candidates: Sequence[QuoteCandidate], plan: QueryPlan, score_closeness: ScoreCloseness) -> AnswerDraft:
    """By what `look` says of the sentences that are worth it."""
    quotes, closeness_scores = await _choose_quotes(candidates, plan, score_closeness)
    cited_quotes = [(quote, citation) for n, quote in enumerate(quotes, 1) if (citation := build_citation(n, quote)) is not None]
    sentences = tuple(DraftSentence(_format_sentence(quote, plan.question), (citation.n,)) for quote, citation in cited_quotes)
    return AnswerDraft(sentences, tuple(citation for _, citation in cited_quotes), MODEL, limitations=(_QUOTED_NOTE,), closeness=closeness_scores)


def _format_sentence(candidate: QuoteCandidate, question: str) -> str:
    text = candidate.readable_text
    return highlight_value(text, find_value(detect_answer_type(question), text, question))


async def _choose_quotes(
    candidates: Sequence[QuoteCandidate], plan: QueryPlan, score_closeness: ScoreCloseness
) -> tuple[list[QuoteCandidate], tuple[float, ...] | None]:
    """The lead first, then what supports it, in the order of the contexts; and the closeness of those that were looked at."""
    overlaps = compute_overlaps(candidates, plan)
    offered_indices = _preselect(candidates, overlaps)
    if not offered_indices:
        return [], None
    lexical = np.array([overlaps[index] for index in offered_indices])
    closeness_scores = await score_closeness([candidates[index] for index in offered_indices])
    score = (
        LEXICAL_WEIGHT * _scale_min_max(lexical)
        + (_scale_min_max(closeness_scores) if closeness_scores is not None else 0.0)
        + _compute_bonus([candidates[index] for index in offered_indices], plan.question)
    )
    order = sorted(range(len(offered_indices)), key=lambda row: (-score[row], row))
    lead_row, *other_rows = order
    supporting_rows = sorted(row for row in other_rows[: MAX_QUOTES - 1] if score[row] >= MIN_SUPPORT_SHARE * score[lead_row])
    return [candidates[offered_indices[row]] for row in (lead_row, *supporting_rows)], None if closeness_scores is None else tuple(closeness_scores.tolist())


def compute_overlaps(candidates: Sequence[QuoteCandidate], plan: QueryPlan) -> FloatArray:
    """Share of the question's idf mass that each sentence (with the headings above it; a row with its columns' names) holds; idf over the sentences themselves."""
    question_keys = list(dict.fromkeys(map(stem_word, extract_content_words(plan.question, plan.language))))
    matches = np.array([_match_words(candidate, question_keys) for candidate in candidates], np.float64).reshape(len(candidates), len(question_keys))
    idf = np.array([math.log(1 + len(candidates) / (1 + count)) for count in matches.sum(axis=0)])
    return np.asarray(matches @ idf / idf.sum()) if question_keys else np.zeros(len(candidates))


def _match_words(candidate: QuoteCandidate, question_keys: Sequence[str]) -> list[bool]:
    candidate_keys = extract_word_keys(f"{candidate.readable_text} {candidate.context.view.section}")
    return [key in candidate_keys for key in question_keys]


def _preselect(candidates: Sequence[QuoteCandidate], overlaps: FloatArray) -> list[int]:
    """Places of the sentences to look at closely: half by their words, half from the best child of each context in turn (the question may share no word with the answer)."""
    by_words = sorted(range(len(candidates)), key=lambda index: (-overlaps[index], index))[: MAX_EMBEDDED_SENTENCES // 2]
    from_best = [index for index, candidate in enumerate(candidates) if candidate.chunk.chunk_id == candidate.context.parent.best.chunk.chunk_id]
    other_indices = [index for index in range(len(candidates)) if index not in set(from_best)]
    chosen_indices = list(dict.fromkeys([*by_words, *from_best, *other_indices]))[:MAX_EMBEDDED_SENTENCES]
    return sorted(chosen_indices)


async def compute_closeness(
    candidates: Sequence[QuoteCandidate], question: str, query: QueryEmbedding | None, embedder: Embedder, reranker: Reranker | None
) -> FloatArray | None:
    """Each sentence's score by the reranker, or its cosine where there is none; None without either. Raises what the engines raise."""
    texts = [item.readable_text for item in candidates]
    if reranker is not None and reranker.role == "replaces":
        return np.array(await reranker.rerank(question, query, [RerankPassage(content_id("quote", text), text) for text in texts]))
    if query is None:
        return None
    embedded = await embedder.embed(texts)
    if reranker is None or query.states is None or any(item.states is None for item in embedded):
        return np.array([float(item.vector.astype(np.float32) @ query.vector) for item in embedded])
    passages = [
        RerankPassage(content_id("quote", text), text, (item.states,), (item.token_ids,))
        for text, item in zip(texts, embedded, strict=True)
        if item.states is not None and item.token_ids is not None
    ]
    return np.asarray(await reranker.rerank(question, query, passages), np.float64)


def _compute_bonus(candidates: Sequence[QuoteCandidate], question: str) -> FloatArray:
    kind = detect_answer_type(question)
    values = [VALUE_BONUS if find_value(kind, candidate.readable_text, question) else 0.0 for candidate in candidates]
    context_ranks = [min(candidate.context.n - 1, 3) for candidate in candidates]
    return np.array([value - RANK_PENALTY * context_rank for value, context_rank in zip(values, context_ranks, strict=True)], np.float64)


def _scale_min_max(values: FloatArray) -> FloatArray:
    low, high = values.min(), values.max()
    scaled: FloatArray = (values - low) / (high - low) if high > low else np.zeros(len(values))
    return scaled
