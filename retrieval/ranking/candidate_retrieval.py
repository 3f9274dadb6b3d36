"""Retrieve the candidates of a query from its channels, with their chunks.

The channels run concurrently; a failure or timeout costs only its own channel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any
from uuid import UUID

import structlog

from retrieval.question.stated_filters import (
    MAX_NAMED_DOCUMENTS,
    DocumentLink,
    confirm_links,
    link_documents,
    weigh_documents,
)
from retrieval.ranking.channels import ChannelOutput, ChannelRequest, Retrieve
from retrieval.ranking.fusion import (
    FusionInput,
    compute_lexical_coverage,
    filter_foreign_hits,
    find_foreign_hits,
    score_pairs,
    score_titles,
)
from retrieval.ranking.passages import ChunkLoader, open_chunk_loader
from retrieval.ranking.query_context import QueryContext, RetrievalResources, elapsed_ms
from schemas.channels import CHANNEL_DECLARATIONS, CHANNELS, Channel
from schemas.citations import AnswerHop
from schemas.errors import AnabranchError, EngineUnavailable, InvalidRequest
from schemas.generations import LexicalConfig
from schemas.ports.engines import QueryEmbedding
from schemas.ports.search import ChunkView, EntitySeed, Hit, IndexSnapshot, LexicalHits
from schemas.profiles import Profile
from schemas.questions import ChannelTrace, Route, SearchRequest

log = structlog.get_logger(__name__)

# By name: a channel consists of its declaration in schemas.channels and one module here.
RETRIEVERS: Mapping[Channel, Retrieve] = {
    name: import_module(f"retrieval.ranking.channels.{name}").retrieve for name in CHANNELS
}
EMBEDDING_CHANNELS = tuple(
    channel.name for channel in CHANNEL_DECLARATIONS if channel.needs_embedding
)
# Limit on deepening a channel, however few documents its candidates belong to. Not a setting: only
# evaluations ask for a depth.
MAX_CANDIDATES_PER_CHANNEL = 4000

_ChannelOutcome = tuple[ChannelOutput | None, AnabranchError | None, float]

# Documents that may share a name of the question and become candidates although no channel found
# them.
MAX_SHARING_NAME = 3


@dataclass(frozen=True, slots=True)
class ChannelCandidates:
    """Hits, traces and failures by channel.

    `complete` names channels that returned every hit they have: a chunk that they lack scores 0
    there. `hops` lead from documents that the question names to others. `notes` are for the trace.
    """

    hits: Mapping[Channel, Sequence[Hit]]
    traces: Mapping[Channel, ChannelTrace]
    failed: Mapping[Channel, str]
    complete: frozenset[Channel]
    lexical: LexicalHits | None
    linked_seeds: Sequence[EntitySeed]
    embedded_query: QueryEmbedding | None
    links: Sequence[DocumentLink] = ()
    hops: Sequence[AnswerHop] = ()
    notes: Sequence[str] = ()


async def find_links(query: QueryContext, snapshot: IndexSnapshot) -> tuple[DocumentLink, ...]:
    """Return the documents that the question names, unless request or profile ignore them."""
    plan = query.plan
    if not (query.request.prefer_named and query.profile.fusion.named and plan.document_names):
        return ()
    with query.stopwatch.measure_step("link"):
        documents = await snapshot.find_named_documents(
            query.caller.tenant,
            sorted({span.key for span in plan.document_names}),
            filters=query.request.filters,
            limit=MAX_NAMED_DOCUMENTS,
        )
    readable = [
        document for document in documents if document.document_id not in query.excluded_documents
    ]
    return link_documents(plan.question, plan.document_names, readable)


async def retrieve_chunks(
    query: QueryContext,
    resources: RetrievalResources,
    snapshot: IndexSnapshot,
    route: Route,
    depth: int | None,
    links: Sequence[DocumentLink] = (),
) -> tuple[ChannelCandidates, Mapping[UUID, ChunkView]]:
    """Return the candidates of the route's channels and of the named documents, and their chunks.

    With a `depth`, each channel is queried again with more candidates until it has that many
    documents or is exhausted. Raises InvalidRequest when the profile disables every channel.
    """
    channels = choose_channels(route, query.request, query.profile)
    if not channels:
        raise InvalidRequest(
            f"Profile {query.profile.name!r} disables every requested channel.",
            code="NO_CHANNEL",
            remedy="Request other channels, or use another profile.",
        )
    reranker = resources.get_reranker(query.profile)
    # The embedding starts at once: other channels need not wait for the vectors.
    embedding_task = (
        asyncio.ensure_future(resources.get_embed(query)(query.plan.text_to_embed))
        if set(channels).intersection(EMBEDDING_CHANNELS)
        or (reranker is not None and reranker.role == "added")
        else None
    )
    try:
        async with open_chunk_loader(snapshot, query.plan.question) as chunk_loader:
            search = _ChannelSearch(query, resources, snapshot, embedding_task, chunk_loader)
            with query.stopwatch.measure_step("channels"):
                candidates = await search.retrieve_to_depth(channels, depth)
                if links:
                    candidates = await search.add_addressed(candidates, links)
                    chunk_loader.load_hits(list_first_chunks(links))
            with query.stopwatch.measure_step("chunks"):
                chunks = await chunk_loader.wait_for_chunks()
                candidates = replace(candidates, links=confirm_links(links, chunks))
                return await _filter_by_language(query, snapshot, candidates, chunks), chunks
    finally:
        # No task outlives its query. The channel that needed a failed embedding has reported the
        # error.
        if embedding_task is not None:
            embedding_task.cancel()
            await asyncio.gather(embedding_task, return_exceptions=True)


def choose_channels(route: Route, request: SearchRequest, profile: Profile) -> tuple[Channel, ...]:
    """Return the requested channels, or those of the mode, without channels that the profile
    disables, and those of default weight 0 that it gives no weight.
    """
    requested = request.channels or [
        channel.name
        for channel in CHANNEL_DECLARATIONS
        if route.mode in (channel.mode, "hybrid")
        and (channel.weight or profile.fusion.get_weight(channel.name))
    ]
    return tuple(
        channel
        for channel in CHANNELS
        if channel in requested and profile.get_channel(channel).enabled
    )


def list_first_chunks(links: Sequence[DocumentLink]) -> list[Hit]:
    """List the first chunks of documents whose name at most MAX_SHARING_NAME share."""
    return [
        Hit(document.chunk_id, document.document_id, 0.0)
        for link in links
        if len(link.documents) <= MAX_SHARING_NAME
        for document in link.documents
    ]


@dataclass(frozen=True, slots=True)
class _ChannelSearch:
    """The search of one query in its channels. The chunks of each channel's hits are loaded as they
    arrive.
    """

    query: QueryContext
    resources: RetrievalResources
    snapshot: IndexSnapshot
    embedding_task: asyncio.Task[QueryEmbedding] | None
    chunk_loader: ChunkLoader

    async def retrieve_to_depth(
        self, channels: Sequence[Channel], depth: int | None
    ) -> ChannelCandidates:
        plan, profile = self.query.plan, self.query.profile
        k = {
            channel: max(
                int(plan.widen * plan.k.get(channel, profile.get_channel(channel).k)),
                depth or 0,
                self.query.request.k,
            )
            for channel in channels
        }
        # A few documents may fill a channel's limit with their chunks: double it until
        # enough are found.
        while True:
            candidates = await self._retrieve(k)
            shallow_channels = [
                channel
                for channel, hits in candidates.hits.items()
                if depth is not None
                and channel not in candidates.complete
                and len({hit.document_id for hit in hits}) < depth
                and k[channel] < MAX_CANDIDATES_PER_CHANNEL
            ]
            if not shallow_channels:
                return candidates
            for channel in shallow_channels:
                k[channel] = min(2 * k[channel], MAX_CANDIDATES_PER_CHANNEL)

    async def add_addressed(
        self, candidates: ChannelCandidates, links: Sequence[DocumentLink]
    ) -> ChannelCandidates:
        """Add the hits within the documents that the question addresses.

        In a large corpus few of their passages are among the first hits of all documents.
        """
        document_ids = [
            document.document_id for link in links if link.is_address for document in link.documents
        ]
        k = {channel: trace.k for channel, trace in candidates.traces.items() if channel != "graph"}
        if not document_ids or not k:
            return candidates
        filters = self.query.request.filters.model_copy(update={"document_ids": document_ids})
        request = self.query.request.model_copy(update={"filters": filters})
        scoped = await replace(self, query=replace(self.query, request=request))._retrieve(k)
        hits = {
            channel: [*channel_hits, *scoped.hits.get(channel, ())]
            for channel, channel_hits in candidates.hits.items()
        }
        return replace(candidates, hits=hits)

    async def _retrieve(self, k: Mapping[Channel, int]) -> ChannelCandidates:
        """Query the channels of `k` concurrently.

        When every channel fails, the first channel's error is raised.
        """
        calls = [self._run_bounded(channel, limit) for channel, limit in k.items()]
        outcomes = dict(zip(k, await _gather_or_cancel(calls), strict=True))
        outputs = {name: output for name, (output, _, _) in outcomes.items() if output is not None}
        errors = {name: error for name, (_, error, _) in outcomes.items() if error is not None}
        if errors and not outputs:
            raise next(iter(errors.values()))
        return ChannelCandidates(
            hits={channel: output.hits for channel, output in outputs.items()},
            traces={
                channel: ChannelTrace(
                    k=k[channel],
                    returned=len(output.hits),
                    best=max((hit.score for hit in output.hits), default=None),
                    ms=outcomes[channel][2],
                    served_by=output.served_by,
                )
                for channel, output in outputs.items()
            },
            failed={channel: f"{error.code}: {error.detail}" for channel, error in errors.items()},
            # Fewer hits than requested means that the channel has no more.
            complete=frozenset(
                channel for channel, output in outputs.items() if len(output.hits) < k[channel]
            ),
            lexical=next((output.lexical for output in outputs.values() if output.lexical), None),
            linked_seeds=next(
                (output.linked_seeds for output in outputs.values() if output.linked_seeds), ()
            ),
            embedded_query=await self._await_embedding(errors),
            notes=[note for output in outputs.values() for note in output.notes],
        )

    async def _run_bounded(self, channel: Channel, k: int) -> _ChannelOutcome:
        """Run one channel with a timeout, and catch every error, bugs included, so that the other
        channels go on.

        Only InvalidRequest propagates: it fails the query.
        """
        excluded, clock = self.query.excluded_documents, self.resources.clock
        # Room for every chunk of the excluded documents, so that as many others are left.
        request = self._build_request(channel, k + sum(excluded.values()))
        started_at = clock()
        output: ChannelOutput | None = None
        failure: AnabranchError | None = None
        try:
            async with asyncio.timeout(request.settings.timeout_s):
                output = await RETRIEVERS[channel](request)
            if excluded:
                hits = [hit for hit in output.hits if hit.document_id not in excluded]
                output = replace(output, hits=hits[:k])
            self.chunk_loader.load_hits(output.hits)
        except TimeoutError:
            failure = EngineUnavailable(
                f"Timed out after {request.settings.timeout_s:g} s.",
                code="TIMED_OUT",
                remedy="Raise the channel's timeout_s in the profile.",
            )
        # The request itself is wrong, so the other channels must not hide it.
        except InvalidRequest:
            raise
        except AnabranchError as error:
            failure = error
        except Exception as error:
            log.exception("channel_failed")
            failure = EngineUnavailable(
                f"{type(error).__name__}: {error}",
                code="CHANNEL_FAILED",
                remedy="Report this bug with the traceback from the server's log.",
            )
        return output, failure, elapsed_ms(started_at, clock())

    def _build_request(self, channel: Channel, k: int) -> ChannelRequest:
        query = self.query
        return ChannelRequest(
            self.snapshot,
            query.caller.tenant,
            query.plan.text_to_match,
            query.plan.language,
            query.plan.names,
            query.request.filters,
            query.profile.get_channel(channel),
            k,
            self._embed,
            query.caller.readers,
            self.resources.graph,
            query.plan.cypher,
        )

    async def _embed(self) -> QueryEmbedding:
        if self.embedding_task is None:
            raise EngineUnavailable("The query was not embedded.")
        # Shielded: a channel that times out must not cancel the embedding that others wait for.
        return await asyncio.shield(self.embedding_task)

    async def _await_embedding(self, failed: Collection[Channel]) -> QueryEmbedding | None:
        task, get_channel = self.embedding_task, self.query.profile.get_channel
        if task is None:
            return None
        timeout_s = max(get_channel(name).timeout_s for name in EMBEDDING_CHANNELS)
        # A failed embedding channel has already waited for the embedding; do not wait twice.
        if set(failed).intersection(EMBEDDING_CHANNELS):
            timeout_s = 0.0
        # A failed embedder is no error here: the channel that needed it has already reported it.
        # Unlike wait_for, wait does not cancel the task: `retrieve_chunks` ends it.
        await asyncio.wait({task}, timeout=timeout_s)
        is_embedded = task.done() and not task.cancelled() and task.exception() is None
        return task.result() if is_embedded else None


async def _gather_or_cancel(
    calls: Sequence[Coroutine[Any, Any, _ChannelOutcome]],
) -> list[_ChannelOutcome]:
    tasks = [asyncio.ensure_future(call) for call in calls]
    # asyncio.gather leaves the other tasks running when one raises.
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def _filter_by_language(
    query: QueryContext,
    snapshot: IndexSnapshot,
    candidates: ChannelCandidates,
    chunks: Mapping[UUID, ChunkView],
) -> ChannelCandidates:
    """Drop lexical hits in another language than the query: shared words say little about them."""
    lexical_hits: Sequence[Hit] = candidates.hits.get("lexical", ())
    # Counting the corpus costs a query: do it only when there is something to filter.
    if not find_foreign_hits(lexical_hits, chunks, query.plan):
        return candidates
    native_hits = filter_foreign_hits(
        lexical_hits,
        chunks,
        query.plan,
        await snapshot.count_chunks(query.caller.tenant),
    )
    return replace(candidates, hits={**candidates.hits, "lexical": native_hits})


def build_fusion_input(
    query: QueryContext,
    candidates: ChannelCandidates,
    chunks: Mapping[UUID, ChunkView],
    config: LexicalConfig,
) -> FusionInput:
    """Return the hits of all channels, with word-pair scores if the profile uses them."""
    pair_scores: dict[UUID, float] = {}
    if query.profile.fusion.bigram and candidates.lexical is not None:
        hits = candidates.hits["lexical"]
        views = [chunks[hit.chunk_id] for hit in hits if hit.chunk_id in chunks]
        pair_scores = score_pairs(query.plan.question, views, candidates.lexical.idf, config)
    weights = weigh_documents(candidates.links)
    found = {hit.chunk_id for hits in candidates.hits.values() for hit in hits}
    found.update(hit.chunk_id for hit in list_first_chunks(candidates.links))
    named = {
        chunk_id: weights[chunks[chunk_id].document_id]
        for chunk_id in found
        if chunk_id in chunks and chunks[chunk_id].document_id in weights
    }
    coverage = (
        compute_lexical_coverage(
            max((hit.score for hit in candidates.hits.get("lexical", ())), default=0.0),
            candidates.lexical.idf,
        )
        if candidates.lexical is not None
        else 0.0
    )
    titles: dict[UUID, float] = {}
    if query.profile.fusion.title and candidates.lexical is not None and not named:
        titles = score_titles(query.plan.question, chunks.values(), candidates.lexical.idf)
    semantic_hits = candidates.hits.get("semantic", ())
    return FusionInput(
        candidates.hits,
        candidates.complete,
        pair_scores,
        coverage,
        {hit.chunk_id: hit.background for hit in semantic_hits if hit.background},
        named,
        titles=titles,
        weight_factors=query.plan.weights,
    )
