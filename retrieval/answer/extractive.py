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

from retrieval.answer.asked_for import find_value, marked, value_kind
from retrieval.answer.citations import cite
from retrieval.answer.drafts import Draft, Sentence
from retrieval.answer.quotables import Quotable
from retrieval.answer.support import word_keys
from retrieval.plan import Plan
from retrieval.words import content_words, word_key
from schemas.errors import AnabranchError
from schemas.ids import content_id
from schemas.ports.engines import EmbeddedQuery, Embedder, Passage, Reranker

Floats = NDArray[np.float64]
Look = Callable[[Sequence[Quotable]], Awaitable[Floats | None]]
"""How close each sentence is to the question; None where no engine can tell."""

MODEL = "extractive"
LOOKED_AT = 24
"""Sentences that are embedded, about 700 tokens: a third of a second on one core."""
LEXICAL_WEIGHT = 0.5
VALUE_BONUS = 0.15
RANK_PENALTY = 0.1
"""Taken off for each context before the sentence's own, up to three: the better passage is the likelier place."""
MOST = 3
SUPPORT = 0.75
"""Share of the lead's score that a further quote must reach."""
_NOTE = "Quoted from the documents; no language model wrote this."


async def extractive_answer(
    items: Sequence[Quotable], plan: Plan, query: EmbeddedQuery | None, embedder: Embedder, reranker: Reranker | None, timeout_s: float
) -> Draft:
    """After `timeout_s` without an answer of the engines the words alone choose."""
    lost = False

    async def look(offered: Sequence[Quotable]) -> Floats | None:
        nonlocal lost
        try:
            async with asyncio.timeout(timeout_s):
                return await closeness(offered, plan.question, query, embedder, reranker)
        except (AnabranchError, TimeoutError):
            lost = True
            return None

    return replace(await quoted_answer(items, plan, look), lost=lost)


async def quoted_answer(items: Sequence[Quotable], plan: Plan, look: Look) -> Draft:
    """By what `look` says of the sentences that are worth it."""
    chosen, close = await _best(items, plan, look)
    cited = [(item, citation) for n, item in enumerate(chosen, 1) if (citation := cite(n, item)) is not None]
    sentences = tuple(Sentence(_said(item, plan.question), (citation.n,)) for item, citation in cited)
    return Draft(sentences, tuple(citation for _, citation in cited), MODEL, limitations=(_NOTE,), closeness=close)


def _said(item: Quotable, question: str) -> str:
    text = item.readable
    return marked(text, find_value(value_kind(question), text, question))


async def _best(items: Sequence[Quotable], plan: Plan, look: Look) -> tuple[list[Quotable], tuple[float, ...] | None]:
    """The lead first, then what supports it, in the order of the contexts; and the closeness of those that were looked at."""
    overlaps = overlap(items, plan)
    offered = _preselected(items, overlaps)
    if not offered:
        return [], None
    lexical = np.array([overlaps[place] for place in offered])
    close = await look([items[place] for place in offered])
    score = LEXICAL_WEIGHT * _min_max(lexical) + (_min_max(close) if close is not None else 0.0) + _bonus([items[place] for place in offered], plan.question)
    order = sorted(range(len(offered)), key=lambda row: (-score[row], row))
    lead, *others = order
    more = sorted(row for row in others[: MOST - 1] if score[row] >= SUPPORT * score[lead])
    return [items[offered[row]] for row in (lead, *more)], None if close is None else tuple(close.tolist())


def overlap(items: Sequence[Quotable], plan: Plan) -> Floats:
    """Share of the question's idf mass that each sentence (with the headings above it; a row with its columns' names) holds; idf over the sentences themselves."""
    asked = list(dict.fromkeys(map(word_key, content_words(plan.question, plan.language))))
    held = np.array([_holds(item, asked) for item in items], np.float64).reshape(len(items), len(asked))
    idf = np.array([math.log(1 + len(items) / (1 + count)) for count in held.sum(axis=0)])
    return np.asarray(held @ idf / idf.sum()) if asked else np.zeros(len(items))


def _holds(item: Quotable, asked: Sequence[str]) -> list[bool]:
    there = word_keys(f"{item.readable} {item.context.view.section}")
    return [key in there for key in asked]


def _preselected(items: Sequence[Quotable], overlaps: Floats) -> list[int]:
    """Places of the sentences to look at closely: half by their words, half from the best child of each context in turn (the question may share no word with the answer)."""
    by_words = sorted(range(len(items)), key=lambda place: (-overlaps[place], place))[: LOOKED_AT // 2]
    from_best = [place for place, item in enumerate(items) if item.chunk.chunk_id == item.context.parent.best.chunk.chunk_id]
    rest = [place for place in range(len(items)) if place not in set(from_best)]
    chosen = list(dict.fromkeys([*by_words, *from_best, *rest]))[:LOOKED_AT]
    return sorted(chosen)


async def closeness(items: Sequence[Quotable], question: str, query: EmbeddedQuery | None, embedder: Embedder, reranker: Reranker | None) -> Floats | None:
    """Each sentence's score by the reranker, or its cosine where there is none; None without either. Raises what the engines raise."""
    texts = [item.readable for item in items]
    if reranker is not None and reranker.role == "replaces":
        return np.array(await reranker.rerank(question, query, [Passage(content_id("quote", text), text) for text in texts]))
    if query is None:
        return None
    embedded = await embedder.embed(texts)
    if reranker is None or query.states is None or any(item.states is None for item in embedded):
        return np.array([float(item.vector.astype(np.float32) @ query.vector) for item in embedded])
    passages = [
        Passage(content_id("quote", text), text, (item.states,), (item.token_ids,))
        for text, item in zip(texts, embedded, strict=True)
        if item.states is not None and item.token_ids is not None
    ]
    return np.asarray(await reranker.rerank(question, query, passages), np.float64)


def _bonus(items: Sequence[Quotable], question: str) -> Floats:
    kind = value_kind(question)
    values = [VALUE_BONUS if find_value(kind, item.readable, question) else 0.0 for item in items]
    places = [min(item.context.n - 1, 3) for item in items]
    return np.array([value - RANK_PENALTY * place for value, place in zip(values, places, strict=True)], np.float64)


def _min_max(values: Floats) -> Floats:
    low, high = values.min(), values.max()
    scaled: Floats = (values - low) / (high - low) if high > low else np.zeros(len(values))
    return scaled
