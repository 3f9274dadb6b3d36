"""Weigh the evidence for an answer: score every sentence and table row of the contexts.

Sentences are compared with the question by late interaction (`engines.rerank.maxsim`) over the
token states that the index holds for their characters, after subtracting the mean state: raw states
point in nearly one direction, which hides differences. So do those of each language, whose mean is
subtracted too (Libovický et al. 2020, arXiv:2004.05160). A linear model over this similarity,
shared words, the values asked for and the rank of the passage gives the score. Its weights are
learned (`benchmarks.evidence_model`) and belong to the states of one embedder.

Without token states, a reranker or the cosine of embedded sentences takes the similarity's place,
and without any engine shared words decide.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from engines.embed.states import normalize_rows, take_leading
from retrieval.answering.row_ranking import demote_rows
from retrieval.evidence_model import EVIDENCE_MODEL
from retrieval.question.answer_values import (
    detect_answer_type,
    find_value,
    holds_name,
    holds_numeral,
)
from retrieval.question.query_plan import QueryPlan
from retrieval.question.question_terms import find_question_terms, index_text_terms
from retrieval.question.words import (
    extract_content_words,
    extract_word_keys,
    match_synonyms,
    match_words,
    stem_word,
)
from retrieval.ranking.fusion import compute_z_scores
from retrieval.ranking.quote_candidates import QuoteCandidate
from retrieval.ranking.reranking import TokenStateReader, TokenStates
from schemas.errors import AnabranchError
from schemas.ids import content_id
from schemas.ports.engines import Embedder, QueryEmbedding, Reranker, RerankPassage, TokenSpans
from schemas.profiles import RerankProfile

FloatArray = NDArray[np.float64]

# Sentences that a quoted answer holds, besides those that conflict. The weights of the estimated
# probability were learned with it.
MAX_QUOTES = 3
# Distance in score from the best sentence up to which further ones are quoted. Measured: the quotes
# hold 99 % of the answers that they hold without a limit, in two thirds of the words.
QUOTE_DISTANCE = 2.0
# Sentences to rerank or embed where the index has no token states of them: about 700 tokens, whose
# embedding takes a third of a second on one core.
MAX_EMBEDDED = 24

# The weights of scores without a model, chosen together and on the scale of learned ones, in which
# distances are measured.
LEXICAL_WEIGHT = 0.5
VALUE_BONUS = 0.15
# Subtracted for each context ranked before the sentence's own, up to three.
RANK_PENALTY = 0.1
# Most that the sentence before it adds to the similarity of a sentence. Measured: 99 % gain less.
# Not a setting: the learned weight of the feature depends on it.
MAX_GAIN = 0.25
# Brings scores without a model to the scale of learned ones, which are logarithms: three quarters
# of the best score lie 2.3 below it.
FALLBACK_SCALE = 8.0


@dataclass(frozen=True, slots=True)
class Similarities:
    """How close each sentence is to the question, by the token states of the index.

    `tokens` is the highest similarity of each question token to a token of each sentence
    [sentences, question tokens], `weights` the idf of the question's tokens, and `reverse` the mean
    over a sentence's tokens of the highest similarity to the question.
    """

    tokens: FloatArray
    weights: FloatArray
    reverse: FloatArray

    def score(self, rows: Sequence[int] | None = None) -> FloatArray:
        """Return the weighted mean similarity of each sentence, or of `rows` read together."""
        tokens = self.tokens if rows is None else self.tokens[list(rows)].max(axis=0)[None, :]
        return np.asarray(tokens @ self.weights / self.weights.sum())


@dataclass(frozen=True, slots=True)
class Evidence:
    """Quote candidates in order of contexts and text, with their scores.

    Scores are None when no engine could compare the sentences. `similarities` are None unless the
    index has token states.
    """

    candidates: tuple[QuoteCandidate, ...]
    scores: tuple[float, ...] | None = None
    similarities: Similarities | None = None
    has_engine_failure: bool = False
    rerank_requests: int = 0

    def get_scores(self, plan: QueryPlan) -> tuple[float, ...]:
        """Return the scores, by shared words alone when no engine made any."""
        if self.scores is not None or not self.candidates:
            return self.scores or ()
        return combine_closeness(self.candidates, plan, range(len(self.candidates)), None)


async def weigh_evidence(
    candidates: Sequence[QuoteCandidate],
    plan: QueryPlan,
    query: QueryEmbedding | None,
    embedder: Embedder,
    reranker: Reranker | None,
    stored_states: TokenStateReader,
    profile: RerankProfile,
) -> Evidence:
    """Score the candidates. When the engines fail or exceed the time-out, there are no scores."""
    evidence = Evidence(tuple(candidates))
    if not candidates:
        return evidence
    try:
        async with asyncio.timeout(profile.timeout_s):
            if reranker is None or reranker.role == "added":
                similarities = await _compare_stored_states(
                    candidates, plan, query, embedder, stored_states
                )
                if similarities is not None:
                    features = compute_selection_features(candidates, plan, similarities)
                    scores = combine_features(features)
                    scores = demote_rows(candidates, plan, scores)
                    return Evidence(tuple(candidates), scores, similarities)
            rows = _preselect(candidates, plan)
            if reranker is not None:
                evidence = replace(evidence, rerank_requests=reranker.count_requests(len(rows)))
            closeness = await _compute_closeness(
                [candidates[row] for row in rows], plan, query, embedder, reranker
            )
    except (AnabranchError, TimeoutError):
        return replace(evidence, has_engine_failure=True)
    if closeness is None:
        return evidence
    return replace(evidence, scores=combine_closeness(candidates, plan, rows, closeness))


async def _compare_stored_states(
    candidates: Sequence[QuoteCandidate],
    plan: QueryPlan,
    query: QueryEmbedding | None,
    embedder: Embedder,
    stored_states: TokenStateReader,
) -> Similarities | None:
    """Compare by the stored states; None unless the question and every sentence have some."""
    if query is None or query.states is None or query.token_ids is None or not len(query.states):
        return None
    chunks = {candidate.chunk.chunk_id: candidate.chunk for candidate in candidates}
    located = await stored_states.read_located(chunks, embedder)
    if located is None:
        return None
    sentence_states = [
        _select_states(candidate, *located[candidate.chunk.chunk_id]) for candidate in candidates
    ]
    present = [states for states in sentence_states if states is not None]
    if len(present) < len(sentence_states):
        return None
    languages = [candidate.chunk.language or plan.language or "" for candidate in candidates]
    return await asyncio.to_thread(
        compare_states,
        present,
        take_leading(query.states),
        query.token_ids,
        find_language_shifts(languages, plan.language or "", query.language_means),
    )


def _select_states(
    candidate: QuoteCandidate, states: TokenStates, spans: TokenSpans
) -> TokenStates | None:
    """Return the states of the sentence's tokens, of its column names and of its lead-in."""
    rows, token_ids = states
    places = ((candidate.start, candidate.end), candidate.header_span, candidate.lead_in)
    is_selected = np.any(
        [
            (spans[:, 1] > place[0]) & (spans[:, 0] < place[1])
            for place in places
            if place is not None
        ],
        axis=0,
    )
    if not is_selected.any():
        return None
    return take_leading(rows[is_selected]), token_ids[is_selected]


def find_language_shifts(
    languages: Sequence[str], question_language: str, means: Mapping[str, NDArray[np.float32]]
) -> list[NDArray[np.float32] | None]:
    """Return how far the states of each sentence's language lie from those of the question's.

    None for the same language, and for one without a mean.
    """
    own = means.get(question_language)
    return [
        mean - own
        if own is not None
        and (language := sentence_language.partition("-")[0]) != question_language
        and (mean := means.get(language)) is not None
        else None
        for sentence_language in languages
    ]


def compare_states(
    sentences: Sequence[TokenStates],
    question_states: NDArray[np.float32],
    question_ids: NDArray[np.int32],
    language_shifts: Sequence[NDArray[np.float32] | None] = (),
) -> Similarities:
    """Compare the states, those of the sentences less their shifts. Blocks for a few
    milliseconds.
    """
    starts = np.cumsum([0, *(len(rows) for rows, _ in sentences[:-1])])
    states = np.concatenate([rows for rows, _ in sentences])
    ids = np.concatenate([token_ids for _, token_ids in sentences])
    for shift, start, (rows, _) in zip(language_shifts, starts, sentences, strict=False):
        if shift is not None:
            states[start : start + len(rows)] -= shift
    mean = states.mean(axis=0)
    similarities = normalize_rows(question_states - mean) @ normalize_rows(states - mean).T
    holds_token = np.logical_or.reduceat(question_ids[:, None] == ids[None, :], starts, axis=1)
    lengths = np.diff(np.append(starts, len(ids)))
    return Similarities(
        np.maximum.reduceat(similarities, starts, axis=1).T.astype(np.float64),
        np.log1p(len(sentences) / (1 + holds_token.sum(axis=1))),
        np.add.reduceat(similarities.max(axis=0), starts) / lengths,
    )


def compute_selection_features(
    candidates: Sequence[QuoteCandidate], plan: QueryPlan, similarities: Similarities
) -> Mapping[str, FloatArray]:
    """Return the features by name, one number for each candidate.

    Measures that have no fixed scale are standardized over the candidates.
    """
    similarity = similarities.score()
    with_previous = np.array(
        [
            similarities.score([row - 1, row])[0]
            if _continues(candidates, row)
            else similarity[row]
            for row in range(len(candidates))
        ]
    )
    is_foreign = np.array([plan.is_foreign(candidate.chunk.language) for candidate in candidates])
    answer_type = detect_answer_type(plan.question)
    ranks = np.array([candidate.context.n - 1 for candidate in candidates])
    parents = [candidate.context.parent for candidate in candidates]
    texts = [candidate.readable_text for candidate in candidates]
    standardized = compute_z_scores(similarity)
    return {
        "similarity": standardized,
        # Weighs more where the words are others.
        "foreign_similarity": np.where(is_foreign, standardized, 0.0),
        "reverse_similarity": compute_z_scores(similarities.reverse),
        # Names and codes are shared across languages too.
        "overlap": compute_overlaps(candidates, plan),
        "synonym_overlap": compute_overlaps(candidates, plan, match_synonyms),
        "passage_rerank_score": compute_z_scores(
            np.array([parent.rerank_score or 0.0 for parent in parents])
        ),
        "gain_of_previous": np.minimum(with_previous - similarity, MAX_GAIN),
        "terms": _compute_term_shares(candidates, plan),
        "is_first_passage": (ranks == 0).astype(np.float64),
        "passage_rank": np.minimum(ranks, 5).astype(np.float64),
        "has_value": np.array(
            [find_value(answer_type, text, plan.question) is not None for text in texts], np.float64
        ),
        "has_numeral": np.array(
            [
                answer_type not in (None, "contact", "name") and holds_numeral(text)
                for text in texts
            ],
            np.float64,
        ),
        "has_name": np.array(
            [answer_type == "name" and holds_name(text, plan.question) for text in texts],
            np.float64,
        ),
        "is_row": np.array([candidate.is_row for candidate in candidates], np.float64),
    }


def combine_features(features: Mapping[str, FloatArray]) -> tuple[float, ...]:
    scores = sum(weight * features[name] for name, weight in EVIDENCE_MODEL.selection.items())
    return tuple(np.asarray(scores, np.float64).tolist())


def _continues(candidates: Sequence[QuoteCandidate], row: int) -> bool:
    """Tell whether a sentence follows another one in the same chunk."""
    return (
        row > 0
        and candidates[row - 1].chunk.chunk_id == candidates[row].chunk.chunk_id
        and not candidates[row].is_row
    )


def _compute_term_shares(candidates: Sequence[QuoteCandidate], plan: QueryPlan) -> FloatArray:
    """Return the share of the question's codes and names that each sentence, with the names above
    it, holds.
    """
    terms = find_question_terms(plan.question, plan.language)
    n_terms = len(terms.codes) + len(terms.names)
    if not n_terms:
        return np.zeros(len(candidates))
    shares = []
    for candidate in candidates:
        text_terms = index_text_terms(list_unit_texts(candidate))
        held = [text_terms.holds_code(code) for code in terms.codes]
        held += [text_terms.holds_name(name) for name in terms.names]
        shares.append(sum(held) / n_terms)
    return np.array(shares, np.float64)


def list_unit_texts(candidate: QuoteCandidate) -> list[str]:
    """Return the texts that say what a sentence is about: its own and the names above it."""
    return [
        candidate.readable_text,
        candidate.lead_in_text,
        candidate.context.view.section,
        candidate.chunk.title or "",
        " ".join(candidate.header or ()),
        " ".join(candidate.raw_values.values()) if candidate.is_row else "",
    ]


def compute_overlaps(
    candidates: Sequence[QuoteCandidate],
    plan: QueryPlan,
    match: Callable[..., Sequence[bool | None]] = match_words,
) -> FloatArray:
    """Return the share of the question's idf mass that matches the words of each sentence.

    Idf is over the sentences themselves. The headings above a sentence count as its words, and the
    column names of a table row.
    """
    words = {stem_word(word): word for word in extract_content_words(plan.question, plan.language)}
    if not words:
        return np.zeros(len(candidates))
    matches = np.zeros((len(candidates), len(words)))
    for row, item in enumerate(candidates):
        text = f"{item.readable_text} {item.lead_in_text} {item.context.view.section}"
        keys = extract_word_keys(text)
        matches[row] = np.array(
            match(words.values(), plan.language, item.chunk.language, keys), bool
        )
    idf = np.array([math.log(1 + len(candidates) / (1 + count)) for count in matches.sum(axis=0)])
    return np.asarray(matches @ idf / idf.sum())


def _preselect(candidates: Sequence[QuoteCandidate], plan: QueryPlan) -> list[int]:
    """Return indices of at most MAX_EMBEDDED sentences to embed or rerank.

    Half are chosen by words, half from the best child of each context: the question may share no
    word with its answer.
    """
    overlaps = compute_overlaps(candidates, plan)
    by_words = rank_rows(overlaps.tolist())[: MAX_EMBEDDED // 2]
    from_best = [
        index
        for index, candidate in enumerate(candidates)
        if candidate.chunk.chunk_id == candidate.context.parent.best.chunk.chunk_id
    ]
    chosen_indices = list(dict.fromkeys([*by_words, *from_best, *range(len(candidates))]))
    return sorted(chosen_indices[:MAX_EMBEDDED])


async def _compute_closeness(
    candidates: Sequence[QuoteCandidate],
    plan: QueryPlan,
    query: QueryEmbedding | None,
    embedder: Embedder,
    reranker: Reranker | None,
) -> FloatArray | None:
    """Score each sentence by the cross-encoder, else by cosine; None without an embedding."""
    texts = [item.readable_text for item in candidates]
    if reranker is not None and reranker.role == "replaces":
        passages = [RerankPassage(content_id("quote", text), text) for text in texts]
        scores = await reranker.rerank(plan.question, query, passages)
        return np.array([item.score for item in scores])
    if query is None:
        return None
    embedded = await embedder.embed(texts)
    return np.array([float(item.vector.astype(np.float32) @ query.vector) for item in embedded])


def combine_closeness(
    candidates: Sequence[QuoteCandidate],
    plan: QueryPlan,
    rows: Sequence[int],
    closeness: FloatArray | None,
) -> tuple[float, ...]:
    """Add closeness, shared words and the bonuses of the given rows; other rows score lowest."""
    offered = [candidates[row] for row in rows]
    sums = (
        LEXICAL_WEIGHT * _scale_min_max(compute_overlaps(candidates, plan)[list(rows)])
        + (_scale_min_max(closeness) if closeness is not None else 0.0)
        + _compute_bonus(offered, plan.question)
    )
    logarithms = FALLBACK_SCALE * np.log(np.maximum(sums, 1e-3))
    scores = np.full(len(candidates), logarithms.min() - FALLBACK_SCALE)
    scores[list(rows)] = logarithms
    return tuple(scores.tolist())


def _compute_bonus(candidates: Sequence[QuoteCandidate], question: str) -> FloatArray:
    answer_type = detect_answer_type(question)
    return np.array(
        [
            (VALUE_BONUS if find_value(answer_type, item.readable_text, question) else 0.0)
            - RANK_PENALTY * min(item.context.n - 1, 3)
            for item in candidates
        ],
        np.float64,
    )


def _scale_min_max(values: FloatArray) -> FloatArray:
    low, high = values.min(), values.max()
    scaled: FloatArray = (values - low) / (high - low) if high > low else np.zeros(len(values))
    return scaled


def rank_rows(scores: Sequence[float]) -> list[int]:
    """Return the indices of the candidates, best first, ties in order of the text."""
    return sorted(range(len(scores)), key=lambda row: (-scores[row], row))
