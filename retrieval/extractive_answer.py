"""The extractive answer: a lead quote with the requested value in bold, and at most two more
quotes.

Sentences are ranked by closeness + 0.5 × the share of the query's words they hold, both scaled to
0..1 over the sentences. Closeness comes from the token states that the index holds for the
sentence's characters, else from embedding the sentence.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from retrieval.answer_drafts import AnswerDraft, DraftSentence, build_citation, extract_word_keys
from retrieval.fusion import compute_z_scores
from retrieval.query_plan import QueryPlan
from retrieval.quote_candidates import (
    QuoteCandidate,
    detect_answer_type,
    find_value,
    highlight_value,
)
from retrieval.reranking import TokenStateReader
from retrieval.words import extract_content_words, stem_word
from schemas.errors import AnabranchError
from schemas.ids import content_id
from schemas.ports.engines import (
    Embedder,
    QueryEmbedding,
    Reranker,
    RerankPassage,
    TokenSpans,
)
from schemas.values import format_embedding_text

FloatArray = NDArray[np.float64]
# Returns the closeness of each sentence to the query; None when no engine is available.
ScoreCloseness = Callable[[Sequence[QuoteCandidate]], Awaitable[FloatArray | None]]

MODEL = "extractive"
# About 700 tokens. Without stored states they are embedded: a third of a second on one core.
MAX_SCORED_SENTENCES = 24
# Measured on 18 questions: the lead is right for 94 %, by MaxSim alone for 83 %.
LEXICAL_WEIGHT = 0.5
VALUE_BONUS = 0.15
# Subtracted for each context ranked before the sentence's own, up to three: better passages are
# likelier to hold the answer.
RANK_PENALTY = 0.1
MAX_QUOTES = 3
# Share of the lead's score that a further quote must reach.
MIN_SUPPORT_SHARE = 0.75
_QUOTED_NOTE = "Quoted from the documents; not written by a language model."


async def extract_answer(
    candidates: Sequence[QuoteCandidate],
    plan: QueryPlan,
    query: QueryEmbedding | None,
    embedder: Embedder,
    reranker: Reranker | None,
    stored_states: TokenStateReader,
    timeout_s: float,
) -> AnswerDraft:
    """Compose an answer of quotes.

    When the engines fail or exceed `timeout_s`, words alone choose the quotes.
    """
    has_engine_failure = False

    async def score_closeness(offered: Sequence[QuoteCandidate]) -> FloatArray | None:
        nonlocal has_engine_failure
        try:
            async with asyncio.timeout(timeout_s):
                return await compute_closeness(
                    offered, plan, query, embedder, reranker, stored_states
                )
        except (AnabranchError, TimeoutError):
            has_engine_failure = True
            return None

    return replace(
        await compose_quoted_answer(candidates, plan, score_closeness),
        has_engine_failure=has_engine_failure,
    )


async def compose_quoted_answer(
    candidates: Sequence[QuoteCandidate], plan: QueryPlan, score_closeness: ScoreCloseness
) -> AnswerDraft:
    quotes, closeness_scores = await _choose_quotes(candidates, plan, score_closeness)
    answer_type = detect_answer_type(plan.question)
    sentences, citations = [], []
    for n, quote in enumerate(quotes, 1):
        citation = build_citation(n, quote)
        if citation is None:
            continue
        value_span = find_value(answer_type, quote.readable_text, plan.question)
        sentences.append(
            DraftSentence(highlight_value(quote.readable_text, value_span), (citation.n,))
        )
        citations.append(citation)
    return AnswerDraft(
        tuple(sentences),
        tuple(citations),
        MODEL,
        limitations=(_QUOTED_NOTE,),
        closeness=closeness_scores,
    )


async def _choose_quotes(
    candidates: Sequence[QuoteCandidate], plan: QueryPlan, score_closeness: ScoreCloseness
) -> tuple[list[QuoteCandidate], tuple[float, ...] | None]:
    """Return the lead, then the supporting quotes in context order, and the closeness scores."""
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
    supporting_rows = sorted(
        row
        for row in other_rows[: MAX_QUOTES - 1]
        if score[row] >= MIN_SUPPORT_SHARE * score[lead_row]
    )
    return [
        candidates[offered_indices[row]] for row in (lead_row, *supporting_rows)
    ], None if closeness_scores is None else tuple(closeness_scores.tolist())


def compute_overlaps(candidates: Sequence[QuoteCandidate], plan: QueryPlan) -> FloatArray:
    """Return the share of the query's idf mass that each sentence contains.

    Idf is over the sentences themselves. The headings above a sentence count as its words, and the
    column names of a table row.
    """
    question_keys = list(
        dict.fromkeys(map(stem_word, extract_content_words(plan.question, plan.language)))
    )
    matches = np.zeros((len(candidates), len(question_keys)))
    for row, candidate in enumerate(candidates):
        words = extract_word_keys(f"{candidate.readable_text} {candidate.context.view.section}")
        matches[row] = [key in words for key in question_keys]
    idf = np.array([math.log(1 + len(candidates) / (1 + count)) for count in matches.sum(axis=0)])
    return np.asarray(matches @ idf / idf.sum()) if question_keys else np.zeros(len(candidates))


def _preselect(candidates: Sequence[QuoteCandidate], overlaps: FloatArray) -> list[int]:
    """Return indices of the sentences to score.

    Half are chosen by words, half from the best child of each context: the query may share no word
    with its answer.
    """
    by_words = sorted(range(len(candidates)), key=lambda index: (-overlaps[index], index))[
        : MAX_SCORED_SENTENCES // 2
    ]
    from_best = [
        index
        for index, candidate in enumerate(candidates)
        if candidate.chunk.chunk_id == candidate.context.parent.best.chunk.chunk_id
    ]
    other_indices = [index for index in range(len(candidates)) if index not in set(from_best)]
    chosen_indices = list(dict.fromkeys([*by_words, *from_best, *other_indices]))[
        :MAX_SCORED_SENTENCES
    ]
    # In order of the text, on which ties and the recorded closeness depend.
    return sorted(chosen_indices)


async def compute_closeness(
    candidates: Sequence[QuoteCandidate],
    plan: QueryPlan,
    query: QueryEmbedding | None,
    embedder: Embedder,
    reranker: Reranker | None,
    stored_states: TokenStateReader,
) -> FloatArray | None:
    """Score each sentence by the reranker, else by cosine; None without an embedding.

    Raises what the engines raise.
    """
    texts = [item.readable_text for item in candidates]
    if reranker is not None and reranker.role == "replaces":
        return np.array(
            await reranker.rerank(
                plan.question,
                query,
                [RerankPassage(content_id("quote", text), text) for text in texts],
            )
        )
    if query is None:
        return None
    if (
        reranker is not None
        and query.states is not None
        and not _is_cross_language(candidates, plan)
    ):
        passages = await _read_sentence_states(candidates, embedder, stored_states)
        if passages is not None:
            return await _score_stored_states(passages, plan.question, query, reranker)
    embedded = await embedder.embed(texts)
    # MaxSim needs token states on both sides; cosine does not.
    if reranker is None or query.states is None or any(item.states is None for item in embedded):
        return np.array([float(item.vector.astype(np.float32) @ query.vector) for item in embedded])
    passages = [
        RerankPassage(content_id("quote", text), text, (item.states,), (item.token_ids,))
        for text, item in zip(texts, embedded, strict=True)
        if item.states is not None and item.token_ids is not None
    ]
    return np.asarray(await reranker.rerank(plan.question, query, passages), np.float64)


def _is_cross_language(candidates: Sequence[QuoteCandidate], plan: QueryPlan) -> bool:
    # Measured on 14 such questions: in its context a token is too far from its translation, and 3
    # answers of 9 were lost.
    return any(plan.is_foreign(candidate.chunk.language) for candidate in candidates)


async def _read_sentence_states(
    candidates: Sequence[QuoteCandidate], embedder: Embedder, stored_states: TokenStateReader
) -> list[RerankPassage] | None:
    """Return the stored states of each sentence's tokens; None unless every sentence has some."""
    chunks = {candidate.chunk.chunk_id: candidate.chunk for candidate in candidates}
    states_by_chunk = await stored_states.read(list(chunks.values()))
    if len(states_by_chunk) < len(chunks):
        return None
    embedded_texts = [format_embedding_text(chunk.prefix, chunk.text) for chunk in chunks.values()]
    spans_by_chunk = dict(zip(chunks, await embedder.locate_tokens(embedded_texts), strict=True))
    passages = []
    for candidate in candidates:
        chunk_id = candidate.chunk.chunk_id
        spans, (states, token_ids) = spans_by_chunk[chunk_id], states_by_chunk[chunk_id]
        # Column names say what a row's values are.
        is_quoted = np.any(
            [
                _overlaps(spans - len(format_embedding_text(candidate.chunk.prefix, "")), *span)
                for span in ((candidate.start, candidate.end), candidate.header_span)
                if span is not None
            ],
            axis=0,
        )
        # Long texts are cut before the embedding, and another program version may have embedded
        # other texts.
        if len(spans) != len(states) or not is_quoted.any():
            return None
        passages.append(
            RerankPassage(
                content_id("quote", candidate.text),
                candidate.text,
                (states[is_quoted],),
                (token_ids[is_quoted],),
            )
        )
    return passages


def _overlaps(spans: TokenSpans, start: int, end: int) -> NDArray[np.bool_]:
    return (spans[:, 1] > start) & (spans[:, 0] < end)


async def _score_stored_states(
    passages: Sequence[RerankPassage], question: str, query: QueryEmbedding, reranker: Reranker
) -> FloatArray:
    """Return the z-score of the late interaction + that of the cosine of the mean states.

    Each alone errs more: the first favors long sentences, the second ignores single words.
    """
    assert query.states is not None
    late_interaction = np.array(await reranker.rerank(question, query, passages), np.float64)
    question_mean = query.states.mean(axis=0)
    sentence_means = np.stack(
        [passage.states[0].astype(np.float32).mean(axis=0) for passage in passages]
    )
    cosines = (sentence_means @ question_mean) / np.maximum(
        np.linalg.norm(sentence_means, axis=1) * np.linalg.norm(question_mean), 1e-9
    )
    return compute_z_scores(late_interaction) + compute_z_scores(cosines.astype(np.float64))


def _compute_bonus(candidates: Sequence[QuoteCandidate], question: str) -> FloatArray:
    kind = detect_answer_type(question)
    values = [
        VALUE_BONUS if find_value(kind, candidate.readable_text, question) else 0.0
        for candidate in candidates
    ]
    context_ranks = [min(candidate.context.n - 1, 3) for candidate in candidates]
    return np.array(
        [
            value - RANK_PENALTY * context_rank
            for value, context_rank in zip(values, context_ranks, strict=True)
        ],
        np.float64,
    )


def _scale_min_max(values: FloatArray) -> FloatArray:
    low, high = values.min(), values.max()
    scaled: FloatArray = (values - low) / (high - low) if high > low else np.zeros(len(values))
    return scaled
