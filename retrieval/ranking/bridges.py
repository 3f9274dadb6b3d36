"""Follow names from passages to the documents that have them: the second hop of a question such as
"Where was the director of Heat born?".

A bridge leads from a seed passage, over a name in its text, to the document of that name. Seeds are
the passages of the documents that the question names, and the best passages otherwise. A bridge
scores as the words around the name fit the rest of the question, by late interaction of the stored
token states, or by shared words without states. The best bridge of a seed scores the seed's weight,
and the others fall exponentially with their distance to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import numpy as np

from retrieval.question.stated_filters import DocumentLink, NameSpan, fold_document_name, join_name
from retrieval.question.words import extract_stems
from retrieval.ranking.candidate_retrieval import ChannelCandidates
from retrieval.ranking.fusion import Fusion
from retrieval.ranking.query_context import QueryContext, RetrievalResources
from retrieval.ranking.quote_candidates import find_sentence
from retrieval.ranking.retrieval_result import clip_spans, format_link, list_pages, parse_spans
from schemas.citations import AnswerHop, HopTarget
from schemas.ids import content_id
from schemas.ports.engines import QueryEmbedding, RerankPassage
from schemas.ports.search import ChunkView, IndexSnapshot, NamedDocument
from schemas.profiles import BridgeProfile

# Longest name to follow, in words, and most names to look up per question. Not settings: they bound
# the cost of a question; `bridges` of the profile says what is followed.
MAX_NAME_WORDS, MAX_NAMES = 7, 500
MAX_DOCUMENTS = 300
_WORD = re.compile(r"\w+(?:['’]\w+)*")


async def follow_bridges(
    query: QueryContext,
    resources: RetrievalResources,
    snapshot: IndexSnapshot,
    candidates: ChannelCandidates,
    fusion: Fusion,
    chunks: Mapping[UUID, ChunkView],
) -> tuple[dict[UUID, float], Mapping[UUID, ChunkView], list[AnswerHop]]:
    """Return the score of each chunk that a bridge leads to, the chunks that were not loaded, and
    the hops along the best bridges.

    Raises what the index and the engines raise.
    """
    best = [candidate.chunk for candidate in fusion.candidates]
    weights = choose_seeds(candidates.links, best, query.profile.bridges)
    seeds = [chunks[chunk_id] for chunk_id in weights if chunk_id in chunks]
    bridges = await find_bridges(query, snapshot, seeds)
    if not bridges:
        return {}, {}, []
    scored = await score_bridges(query, resources, bridges, weights, chunks, candidates)
    missing_ids = sorted(scored.keys() - chunks.keys())
    reached = await snapshot.fetch_chunks(missing_ids, query.plan.question)
    views = {**chunks, **reached}
    hops = [
        hop
        for chunk_id, bridge in choose_best_bridges(scored, candidates.links)
        if chunk_id in views
        and (hop := build_hop(bridge, chunks[bridge.seed], views[chunk_id])) is not None
    ]
    return {chunk_id: score for chunk_id, (score, _) in scored.items()}, reached, hops


@dataclass(frozen=True, slots=True)
class Bridge:
    """A name in a seed passage, by its characters, and the document that has it."""

    seed: UUID
    start: int
    end: int
    target: NamedDocument


def choose_seeds(
    links: Iterable[DocumentLink], best: Sequence[ChunkView], profile: BridgeProfile
) -> dict[UUID, float]:
    """Return weights by chunk: first chunks of documents that the question names, and the best
    passages at `passage_weight`.
    """
    seeds = {
        document.chunk_id: link.weight
        for link in links
        if len(link.documents) <= profile.max_shared
        for document in link.documents
    }
    for view in best[: profile.passages]:
        seeds.setdefault(view.chunk_id, profile.passage_weight)
    return seeds


def find_mentions(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, key) of runs of words that begin and end like a name, longest first."""
    matches = list(_WORD.finditer(text))
    bounds = [not match.group()[0].islower() for match in matches]
    folded = [fold_document_name(match.group()) for match in matches]
    for length in range(MAX_NAME_WORDS, 0, -1):
        for first in range(len(matches) - length + 1):
            last = first + length - 1
            if bounds[first] and bounds[last]:
                key = join_name(folded[first : last + 1])
                if len(key) > 2 and not key.isdigit():
                    yield matches[first].start(), matches[last].end(), key


async def find_bridges(
    query: QueryContext, snapshot: IndexSnapshot, seeds: Sequence[ChunkView]
) -> list[Bridge]:
    """Return the bridges from the seeds to other documents, longest names first."""
    mentions = {seed.chunk_id: list(find_mentions(seed.text)) for seed in seeds}
    keys = sorted({key for found in mentions.values() for _, _, key in found}, key=len)[-MAX_NAMES:]
    by_key: dict[str, list[NamedDocument]] = {}
    for document in await snapshot.find_named_documents(
        query.caller.tenant, keys, filters=query.request.filters, limit=MAX_DOCUMENTS
    ):
        if document.document_id not in query.excluded_documents:
            by_key.setdefault(document.key, []).append(document)
    bridges: list[Bridge] = []
    for seed in seeds:
        taken: list[tuple[int, int]] = []
        for start, end, key in mentions[seed.chunk_id]:
            targets = by_key.get(key, ())
            if not 0 < len(targets) <= query.profile.bridges.max_shared or any(
                start < other_end and other_start < end for other_start, other_end in taken
            ):
                continue
            taken.append((start, end))
            bridges += [
                Bridge(seed.chunk_id, start, end, target)
                for target in targets
                if target.document_id != seed.document_id
            ]
    return bridges


async def score_bridges(
    query: QueryContext,
    resources: RetrievalResources,
    bridges: Sequence[Bridge],
    seeds: Mapping[UUID, float],
    chunks: Mapping[UUID, ChunkView],
    candidates: ChannelCandidates,
) -> dict[UUID, tuple[float, Bridge]]:
    """Return the score of each target's first chunk, with the bridge that gives it."""
    named = [link.span for link in candidates.links]
    fits = await _score_contexts(
        query, resources, bridges, chunks, named, candidates.embedded_query
    )
    by_seed: dict[UUID, dict[UUID, tuple[float, Bridge]]] = {}
    for bridge, fit in zip(bridges, fits, strict=True):
        targets = by_seed.setdefault(bridge.seed, {})
        if fit > targets.get(bridge.target.chunk_id, (-np.inf,))[0]:
            targets[bridge.target.chunk_id] = fit, bridge
    scored: dict[UUID, tuple[float, Bridge]] = {}
    for seed, targets in by_seed.items():
        values = np.array([fit for fit, _ in targets.values()])
        shares = np.exp((values - values.max()) / query.profile.bridges.temperature)
        for (chunk_id, (_, bridge)), share in zip(targets.items(), shares.tolist(), strict=True):
            score = seeds[seed] * share
            if chunk_id not in scored or score > scored[chunk_id][0]:
                scored[chunk_id] = score, bridge
    return scored


def choose_best_bridges(
    scored: Mapping[UUID, tuple[float, Bridge]], links: Iterable[DocumentLink]
) -> list[tuple[UUID, Bridge]]:
    """Return the target and the bridge that scores best for each document that the question names.

    Bridges to another document that it names are left out: they tell nothing.
    """
    seeds = {document.chunk_id for link in links for document in link.documents}
    named = {document.document_id for link in links for document in link.documents}
    best: dict[UUID, tuple[float, UUID, Bridge]] = {}
    for chunk_id, (score, bridge) in scored.items():
        if bridge.seed not in seeds or bridge.target.document_id in named:
            continue
        if bridge.seed not in best or score > best[bridge.seed][0]:
            best[bridge.seed] = score, chunk_id, bridge
    return [(chunk_id, bridge) for _, chunk_id, bridge in best.values()]


def build_hop(bridge: Bridge, seed: ChunkView, target: ChunkView) -> AnswerHop | None:
    """Quote the sentence or line with the name; None where offsets do not fit the stored text."""
    if seed.char_start + len(seed.text) != seed.char_end:
        return None
    start, end = find_sentence(seed.text, bridge.start, bridge.end)
    spans = clip_spans(parse_spans(seed), seed.char_start + start, seed.char_start + end)
    return AnswerHop(
        name=seed.text[bridge.start : bridge.end],
        document_id=seed.document_id,
        external_id=seed.external_id,
        title=seed.title,
        chunk_id=seed.chunk_id,
        link=format_link(
            seed.document_id, list_pages(spans), seed.char_start + start, seed.char_start + end
        ),
        spans=spans,
        quote=seed.text[start:end],
        target=HopTarget(
            document_id=target.document_id, external_id=target.external_id, title=target.title
        ),
    )


async def _score_contexts(
    query: QueryContext,
    resources: RetrievalResources,
    bridges: Sequence[Bridge],
    chunks: Mapping[UUID, ChunkView],
    named: Sequence[NameSpan],
    embedded_query: QueryEmbedding | None,
) -> list[float]:
    """Score the words around each name against the question without the names that it links."""
    question = query.plan.question
    reranker = resources.get_reranker(query.profile)
    if embedded_query is not None and reranker is not None and reranker.role == "added":
        rest = await _cut_names(question, named, embedded_query, resources)
        passages = await _cut_contexts(bridges, chunks, resources, query.profile.bridges.window)
        if rest is not None and passages is not None:
            return [item.score for item in await reranker.rerank(question, rest, passages)]
    for span in sorted(named, key=lambda span: -span.start):
        question = f"{question[: span.start]} {question[span.end :]}"
    wanted = extract_stems(question)
    return [_share_words(wanted, bridge, chunks[bridge.seed].text) for bridge in bridges]


def _share_words(wanted: set[str], bridge: Bridge, text: str) -> float:
    # About the characters of the window of tokens.
    context = text[max(0, bridge.start - 60) : bridge.end + 60]
    return len(wanted & extract_stems(context)) / max(1, len(wanted))


async def _cut_names(
    question: str,
    named: Sequence[NameSpan],
    embedded_query: QueryEmbedding,
    resources: RetrievalResources,
) -> QueryEmbedding | None:
    """Return the token states of the question outside the names; None without states."""
    states, token_ids = embedded_query.states, embedded_query.token_ids
    if states is None or token_ids is None:
        return None
    [spans] = await resources.embedder.locate_tokens([question])
    if len(spans) != len(states):
        return embedded_query
    is_rest = np.ones(len(states), bool)
    for span in named:
        is_rest &= (spans[:, 1] <= span.start) | (spans[:, 0] >= span.end)
    if not is_rest.any():
        return embedded_query
    return replace(embedded_query, states=states[is_rest], token_ids=token_ids[is_rest])


async def _cut_contexts(
    bridges: Sequence[Bridge],
    chunks: Mapping[UUID, ChunkView],
    resources: RetrievalResources,
    window: int,
) -> list[RerankPassage] | None:
    """Return the token states within `window` tokens of each name; None unless all are stored."""
    seeds = {bridge.seed: chunks[bridge.seed] for bridge in bridges}
    located = await resources.states.read_located(seeds, resources.embedder)
    if located is None:
        return None
    passages = []
    for bridge in bridges:
        (states, token_ids), spans = located[bridge.seed]
        inside = np.flatnonzero((spans[:, 1] > bridge.start) & (spans[:, 0] < bridge.end))
        if not len(inside):
            return None
        rows = slice(max(0, inside[0] - window), inside[-1] + 1 + window)
        passages.append(
            RerankPassage(
                content_id("bridge", bridge.seed, bridge.start, bridge.target.document_id),
                seeds[bridge.seed].text[bridge.start : bridge.end],
                (states[rows],),
                (token_ids[rows],),
            )
        )
    return passages
