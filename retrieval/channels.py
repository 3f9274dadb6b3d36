"""The three channels, asked at once; each failure or time-out costs only its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from retrieval.query_plan import QueryPlan
from retrieval.timing import Clock, elapsed_ms
from schemas.errors import AnabranchError, EngineUnavailable, InvalidRequest
from schemas.ports.engines import QueryEmbedding
from schemas.ports.search import EntitySeed, Hit, IndexSnapshot, LexicalHits
from schemas.profiles import Profile
from schemas.questions import Channel, ChannelTrace, Filters

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChannelCandidates:
    """What the channels brought. `complete` names those that gave all they had, so that a chunk they miss scores nothing there."""

    hits: Mapping[Channel, Sequence[Hit]]
    traces: Mapping[Channel, ChannelTrace]
    failed: Mapping[Channel, str]
    complete: frozenset[Channel]
    lexical: LexicalHits | None
    linked_seeds: Sequence[EntitySeed]
    embedded_query: QueryEmbedding | None


@dataclass(frozen=True, slots=True)
class _ChannelOutput:
    hits: Sequence[Hit]
    lexical: LexicalHits | None = None
    linked_seeds: Sequence[EntitySeed] = ()


OnHits = Callable[[Sequence[Hit]], None]
_ChannelOutcome = tuple[_ChannelOutput | None, AnabranchError | None, float]


@dataclass(frozen=True, slots=True)
class RetrievalRequest:
    """What all channels are asked with. `k` says how many candidates each may bring."""

    tenant: str
    plan: QueryPlan
    profile: Profile
    filters: Filters
    k: Mapping[Channel, int]


def start_embedding(embed: Callable[[str], Coroutine[Any, Any, QueryEmbedding]], question: str, *, is_needed: bool) -> asyncio.Task[QueryEmbedding] | None:
    """The question's vectors, begun at once: the lexical channel need not wait for them."""
    return asyncio.ensure_future(embed(question)) if is_needed else None


async def retrieve_candidates(
    snapshot: IndexSnapshot,
    request: RetrievalRequest,
    channels: Sequence[Channel],
    embedding_task: asyncio.Task[QueryEmbedding] | None,
    clock: Clock,
    on_hits: OnHits,
) -> ChannelCandidates:
    """What each brings is told at once, by `seen`. Raises what the channels raised if none of them answered."""
    calls: dict[Channel, Callable[[], Awaitable[_ChannelOutput]]] = {
        "lexical": lambda: _retrieve_lexical(snapshot, request),
        "semantic": lambda: _retrieve_semantic(snapshot, request, embedding_task),
        "graph": lambda: _retrieve_graph(snapshot, request),
    }
    outcomes = await _gather_or_cancel([_run_bounded(calls[channel], _get_timeout_s(request.profile, channel), clock, on_hits) for channel in channels])
    outputs = {channel: output for channel, (output, _, _) in zip(channels, outcomes, strict=True) if output is not None}
    errors = {channel: error for channel, (_, error, _) in zip(channels, outcomes, strict=True) if error is not None}
    durations_ms = {channel: ms for channel, (_, _, ms) in zip(channels, outcomes, strict=True)}
    if errors and not outputs:
        raise next(iter(errors.values()))
    return ChannelCandidates(
        hits={channel: output.hits for channel, output in outputs.items()},
        traces={channel: _build_trace(request.k[channel], output.hits, durations_ms[channel]) for channel, output in outputs.items()},
        failed={channel: _format_failure(error) for channel, error in errors.items()},
        complete=frozenset(channel for channel, output in outputs.items() if len(output.hits) < request.k[channel]),
        lexical=next((output.lexical for output in outputs.values() if output.lexical), None),
        linked_seeds=next((output.linked_seeds for output in outputs.values() if output.linked_seeds), ()),
        embedded_query=await _await_embedding(embedding_task, 0.0 if "semantic" in errors else request.profile.semantic.timeout_s),
    )


async def _gather_or_cancel(calls: Sequence[Coroutine[Any, Any, _ChannelOutcome]]) -> list[_ChannelOutcome]:
    """No call outlives the others: if one ends the question, the rest are cancelled and waited for."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def _run_bounded(call: Callable[[], Awaitable[_ChannelOutput]], timeout_s: float, clock: Clock, on_hits: OnHits) -> _ChannelOutcome:
    """The bulkhead between channels: whatever one raises, a bug of ours included, ends only the channel. A request that is wrong ends the question."""
    started_at = clock()
    output: _ChannelOutput | None = None
    failure: AnabranchError | None = None
    try:
        async with asyncio.timeout(timeout_s):
            output = await call()
        on_hits(output.hits)
    except TimeoutError:
        failure = EngineUnavailable(
            f"no answer within {timeout_s:g} s", code="TIMED_OUT", remedy="Raise the channel's timeout_s in the profile, or find what is slow."
        )
    except InvalidRequest:
        raise
    except AnabranchError as error:
        failure = error
    except Exception as error:
        log.exception("a channel failed")
        failure = EngineUnavailable(f"{type(error).__name__}: {error}", code="CHANNEL_FAILED", remedy="This is a bug: the server's log has its traceback.")
    return output, failure, elapsed_ms(started_at, clock())


async def _retrieve_lexical(snapshot: IndexSnapshot, request: RetrievalRequest) -> _ChannelOutput:
    lexical_hits = await snapshot.search_lexical(
        request.tenant,
        request.plan.question,
        language=request.plan.language,
        filters=request.filters,
        k=request.k["lexical"],
        budget=request.profile.lexical.budget,
    )
    return _ChannelOutput(lexical_hits.hits, lexical=lexical_hits)


async def _retrieve_semantic(snapshot: IndexSnapshot, request: RetrievalRequest, embedding_task: asyncio.Task[QueryEmbedding] | None) -> _ChannelOutput:
    if embedding_task is None:
        raise EngineUnavailable("the question was not embedded")
    embedded_query = await asyncio.shield(embedding_task)
    return _ChannelOutput(await snapshot.search_semantic(request.tenant, embedded_query.vector, filters=request.filters, k=request.k["semantic"]))


async def _retrieve_graph(snapshot: IndexSnapshot, request: RetrievalRequest) -> _ChannelOutput:
    seeds = weigh_seeds(await snapshot.link_entities(request.tenant, list(request.plan.names)), request.plan)
    if not seeds:
        return _ChannelOutput(())
    profile = request.profile.graph
    hits = await snapshot.search_graph(
        request.tenant, seeds, hops=profile.hops, fan_out=profile.fan_out, decay=profile.decay, filters=request.filters, k=request.k["graph"]
    )
    return _ChannelOutput(hits, linked_seeds=seeds)


def weigh_seeds(seeds: Sequence[EntitySeed], plan: QueryPlan) -> list[EntitySeed]:
    """Longest match first: a name inside another linked name is no seed. Each is worth what its spelling in the question is worth."""
    keys = {seed.key for seed in seeds}
    longest_seeds = [seed for seed in seeds if not any(seed.key != key and f" {seed.key} " in f" {key} " for key in keys)]
    return [replace(seed, weight=seed.weight * plan.names.get(seed.key, 1.0)) for seed in longest_seeds]


async def _await_embedding(embedding_task: asyncio.Task[QueryEmbedding] | None, timeout_s: float) -> QueryEmbedding | None:
    """The question's vectors for later steps, or None where the embedder is away (the semantic channel, where it was asked, has waited and said so)."""
    if embedding_task is None:
        return None
    await asyncio.wait({embedding_task}, timeout=timeout_s)
    return embedding_task.result() if embedding_task.done() and not embedding_task.cancelled() and embedding_task.exception() is None else None


def _get_timeout_s(profile: Profile, channel: Channel) -> float:
    return {"lexical": profile.lexical, "semantic": profile.semantic, "graph": profile.graph}[channel].timeout_s


def _build_trace(k: int, hits: Sequence[Hit], ms: float) -> ChannelTrace:
    return ChannelTrace(k=k, returned=len(hits), best=max((hit.score for hit in hits), default=None), ms=ms)


def _format_failure(error: AnabranchError) -> str:
    return f"{error.code}: {error.detail}"
