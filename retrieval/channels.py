"""Query the three channels concurrently. A failure or timeout costs only its own channel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from retrieval.query_plan import QueryPlan
from retrieval.timing import Clock, elapsed_ms
from schemas.errors import AnabranchError, EngineUnavailable, InvalidRequest
from schemas.ports.engines import QueryEmbedding
from schemas.ports.search import EntitySeed, Hit, IndexSnapshot, LexicalHits
from schemas.profiles import Profile
from schemas.questions import Channel, ChannelTrace, Filters

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ChannelCandidates:
    """Hits, traces and failures by channel.

    `complete` names channels that returned every hit they have: a chunk that they lack scores 0
    there.
    """

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
    """The input of every channel. `k` is the maximum number of candidates of each."""

    tenant: str
    plan: QueryPlan
    profile: Profile
    filters: Filters
    k: Mapping[Channel, int]


def start_embedding(
    embed: Callable[[str], Coroutine[Any, Any, QueryEmbedding]], question: str, *, is_needed: bool
) -> asyncio.Task[QueryEmbedding] | None:
    """Start to embed the query at once: the lexical channel need not wait for the vectors."""
    return asyncio.ensure_future(embed(question)) if is_needed else None


async def retrieve_candidates(
    snapshot: IndexSnapshot,
    request: RetrievalRequest,
    channels: Sequence[Channel],
    embedding_task: asyncio.Task[QueryEmbedding] | None,
    clock: Clock,
    on_hits: OnHits,
) -> ChannelCandidates:
    """Query the channels concurrently; report the hits of each to `on_hits` as they arrive.

    When every channel fails, the first channel's error is raised.
    """
    calls: dict[Channel, Callable[[], Awaitable[_ChannelOutput]]] = {
        "lexical": lambda: _retrieve_lexical(snapshot, request),
        "semantic": lambda: _retrieve_semantic(snapshot, request, embedding_task),
        "graph": lambda: _retrieve_graph(snapshot, request),
    }
    outcomes = await _gather_or_cancel(
        [
            _run_bounded(calls[channel], _get_timeout_s(request.profile, channel), clock, on_hits)
            for channel in channels
        ]
    )
    outputs = {
        channel: output
        for channel, (output, _, _) in zip(channels, outcomes, strict=True)
        if output is not None
    }
    errors = {
        channel: error
        for channel, (_, error, _) in zip(channels, outcomes, strict=True)
        if error is not None
    }
    durations_ms = {channel: ms for channel, (_, _, ms) in zip(channels, outcomes, strict=True)}
    if errors and not outputs:
        raise next(iter(errors.values()))
    return ChannelCandidates(
        hits={channel: output.hits for channel, output in outputs.items()},
        traces={
            channel: _build_trace(request.k[channel], output.hits, durations_ms[channel])
            for channel, output in outputs.items()
        },
        failed={channel: _format_failure(error) for channel, error in errors.items()},
        complete=frozenset(
            channel for channel, output in outputs.items() if len(output.hits) < request.k[channel]
        ),
        lexical=next((output.lexical for output in outputs.values() if output.lexical), None),
        linked_seeds=next(
            (output.linked_seeds for output in outputs.values() if output.linked_seeds), ()
        ),
        embedded_query=await _await_embedding(
            embedding_task, 0.0 if "semantic" in errors else request.profile.semantic.timeout_s
        ),
    )


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


async def _run_bounded(
    call: Callable[[], Awaitable[_ChannelOutput]], timeout_s: float, clock: Clock, on_hits: OnHits
) -> _ChannelOutcome:
    """Run one channel with a timeout, and catch every error, bugs included, so that the other
    channels go on.

    Only InvalidRequest propagates: it fails the query.
    """
    started_at = clock()
    output: _ChannelOutput | None = None
    failure: AnabranchError | None = None
    try:
        async with asyncio.timeout(timeout_s):
            output = await call()
        on_hits(output.hits)
    except TimeoutError:
        failure = EngineUnavailable(
            f"Timed out after {timeout_s:g} s.",
            code="TIMED_OUT",
            remedy="Raise the channel's timeout_s in the profile.",
        )
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


async def _retrieve_semantic(
    snapshot: IndexSnapshot,
    request: RetrievalRequest,
    embedding_task: asyncio.Task[QueryEmbedding] | None,
) -> _ChannelOutput:
    if embedding_task is None:
        raise EngineUnavailable("The query was not embedded.")
    embedded_query = await asyncio.shield(embedding_task)
    return _ChannelOutput(
        await snapshot.search_semantic(
            request.tenant, embedded_query.vector, filters=request.filters, k=request.k["semantic"]
        )
    )


async def _retrieve_graph(snapshot: IndexSnapshot, request: RetrievalRequest) -> _ChannelOutput:
    seeds = weigh_seeds(
        await snapshot.link_entities(request.tenant, list(request.plan.names)), request.plan
    )
    if not seeds:
        return _ChannelOutput(())
    profile = request.profile.graph
    hits = await snapshot.search_graph(
        request.tenant,
        seeds,
        hops=profile.hops,
        fan_out=profile.fan_out,
        decay=profile.decay,
        filters=request.filters,
        k=request.k["graph"],
    )
    return _ChannelOutput(hits, linked_seeds=seeds)


def weigh_seeds(seeds: Sequence[EntitySeed], plan: QueryPlan) -> list[EntitySeed]:
    """Drop names that lie inside a longer linked name.

    The weight of the others is multiplied by that of their spelling in the query.
    """
    keys = {seed.key for seed in seeds}
    longest_seeds = [
        seed
        for seed in seeds
        if not any(seed.key != key and f" {seed.key} " in f" {key} " for key in keys)
    ]
    return [
        replace(seed, weight=seed.weight * plan.names.get(seed.key, 1.0)) for seed in longest_seeds
    ]


async def _await_embedding(
    embedding_task: asyncio.Task[QueryEmbedding] | None, timeout_s: float
) -> QueryEmbedding | None:
    if embedding_task is None:
        return None
    # A failed embedder is no error here: the semantic channel, if used, has already reported it.
    await asyncio.wait({embedding_task}, timeout=timeout_s)
    return (
        embedding_task.result()
        if embedding_task.done()
        and not embedding_task.cancelled()
        and embedding_task.exception() is None
        else None
    )


def _get_timeout_s(profile: Profile, channel: Channel) -> float:
    return {"lexical": profile.lexical, "semantic": profile.semantic, "graph": profile.graph}[
        channel
    ].timeout_s


def _build_trace(k: int, hits: Sequence[Hit], ms: float) -> ChannelTrace:
    return ChannelTrace(
        k=k, returned=len(hits), best=max((hit.score for hit in hits), default=None), ms=ms
    )


def _format_failure(error: AnabranchError) -> str:
    return f"{error.code}: {error.detail}"
