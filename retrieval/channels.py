"""The three channels, asked at once; each failure or time-out costs only its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from retrieval.plan import Plan
from retrieval.timing import Clock, milliseconds
from schemas.errors import AnabranchError, EngineUnavailable, InvalidRequest
from schemas.ports.engines import EmbeddedQuery
from schemas.ports.search import Hit, LexicalHits, Seed, Snapshot
from schemas.profiles import Profile
from schemas.questions import Channel, ChannelTrace, Filters

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """What the channels brought. `complete` names those that gave all they had, so that a chunk they miss scores nothing there."""

    hits: Mapping[Channel, Sequence[Hit]]
    traces: Mapping[Channel, ChannelTrace]
    failed: Mapping[Channel, str]
    complete: frozenset[Channel]
    lexical: LexicalHits | None
    linked: Sequence[Seed]
    embedded: EmbeddedQuery | None


@dataclass(frozen=True, slots=True)
class _Answer:
    hits: Sequence[Hit]
    lexical: LexicalHits | None = None
    linked: Sequence[Seed] = ()


Seen = Callable[[Sequence[Hit]], None]
_Outcome = tuple[_Answer | None, AnabranchError | None, float]


@dataclass(frozen=True, slots=True)
class Ask:
    """What all channels are asked with. `k` says how many candidates each may bring."""

    tenant: str
    plan: Plan
    profile: Profile
    filters: Filters
    k: Mapping[Channel, int]


def embedding(embed: Callable[[str], Coroutine[Any, Any, EmbeddedQuery]], question: str, *, wanted: bool) -> asyncio.Task[EmbeddedQuery] | None:
    """The question's vectors, begun at once: the lexical channel need not wait for them."""
    return asyncio.ensure_future(embed(question)) if wanted else None


async def ask_channels(snapshot: Snapshot, ask: Ask, wanted: Sequence[Channel], query: asyncio.Task[EmbeddedQuery] | None, clock: Clock, seen: Seen) -> Found:
    """What each brings is told at once, by `seen`. Raises what the channels raised if none of them answered."""
    calls: dict[Channel, Callable[[], Awaitable[_Answer]]] = {
        "lexical": lambda: _lexical(snapshot, ask),
        "semantic": lambda: _semantic(snapshot, ask, query),
        "graph": lambda: _graph(snapshot, ask),
    }
    outcomes = await _at_once([_timed(calls[channel], _timeout(ask.profile, channel), clock, seen) for channel in wanted])
    answers = {channel: answer for channel, (answer, _, _) in zip(wanted, outcomes, strict=True) if answer is not None}
    errors = {channel: error for channel, (_, error, _) in zip(wanted, outcomes, strict=True) if error is not None}
    times = {channel: ms for channel, (_, _, ms) in zip(wanted, outcomes, strict=True)}
    if errors and not answers:
        raise next(iter(errors.values()))
    return Found(
        hits={channel: answer.hits for channel, answer in answers.items()},
        traces={channel: _trace(ask.k[channel], answer.hits, times[channel]) for channel, answer in answers.items()},
        failed={channel: _reason(error) for channel, error in errors.items()},
        complete=frozenset(channel for channel, answer in answers.items() if len(answer.hits) < ask.k[channel]),
        lexical=next((answer.lexical for answer in answers.values() if answer.lexical), None),
        linked=next((answer.linked for answer in answers.values() if answer.linked), ()),
        embedded=await _embedded(query, 0.0 if "semantic" in errors else ask.profile.semantic.timeout_s),
    )


async def _at_once(calls: Sequence[Coroutine[Any, Any, _Outcome]]) -> list[_Outcome]:
    """No call outlives the others: if one ends the question, the rest are cancelled and waited for."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def _timed(call: Callable[[], Awaitable[_Answer]], timeout_s: float, clock: Clock, seen: Seen) -> _Outcome:
    """The bulkhead between channels: whatever one raises, a bug of ours included, ends only the channel. A request that is wrong ends the question."""
    began = clock()
    answer: _Answer | None = None
    failure: AnabranchError | None = None
    try:
        async with asyncio.timeout(timeout_s):
            answer = await call()
        seen(answer.hits)
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
    return answer, failure, milliseconds(began, clock())


async def _lexical(snapshot: Snapshot, ask: Ask) -> _Answer:
    found = await snapshot.lexical(
        ask.tenant, ask.plan.question, language=ask.plan.language, filters=ask.filters, k=ask.k["lexical"], budget=ask.profile.lexical.budget
    )
    return _Answer(found.hits, lexical=found)


async def _semantic(snapshot: Snapshot, ask: Ask, query: asyncio.Task[EmbeddedQuery] | None) -> _Answer:
    if query is None:
        raise EngineUnavailable("the question was not embedded")
    embedded = await asyncio.shield(query)
    return _Answer(await snapshot.semantic(ask.tenant, embedded.vector, filters=ask.filters, k=ask.k["semantic"]))


async def _graph(snapshot: Snapshot, ask: Ask) -> _Answer:
    seeds = weighted(await snapshot.link(ask.tenant, list(ask.plan.names)), ask.plan)
    if not seeds:
        return _Answer(())
    profile = ask.profile.graph
    hits = await snapshot.graph(ask.tenant, seeds, hops=profile.hops, fan_out=profile.fan_out, decay=profile.decay, filters=ask.filters, k=ask.k["graph"])
    return _Answer(hits, linked=seeds)


def weighted(seeds: Sequence[Seed], plan: Plan) -> list[Seed]:
    """Longest match first: a name inside another linked name is no seed. Each is worth what its spelling in the question is worth."""
    keys = {seed.key for seed in seeds}
    kept = [seed for seed in seeds if not any(seed.key != key and f" {seed.key} " in f" {key} " for key in keys)]
    return [replace(seed, weight=seed.weight * plan.names.get(seed.key, 1.0)) for seed in kept]


async def _embedded(query: asyncio.Task[EmbeddedQuery] | None, timeout_s: float) -> EmbeddedQuery | None:
    """The question's vectors for later steps, or None where the embedder is away (the semantic channel, where it was asked, has waited and said so)."""
    if query is None:
        return None
    await asyncio.wait({query}, timeout=timeout_s)
    return query.result() if query.done() and not query.cancelled() and query.exception() is None else None


def _timeout(profile: Profile, channel: Channel) -> float:
    return {"lexical": profile.lexical, "semantic": profile.semantic, "graph": profile.graph}[channel].timeout_s


def _trace(k: int, hits: Sequence[Hit], ms: float) -> ChannelTrace:
    return ChannelTrace(k=k, returned=len(hits), best=max((hit.score for hit in hits), default=None), ms=ms)


def _reason(error: AnabranchError) -> str:
    return f"{error.code}: {error.detail}"
