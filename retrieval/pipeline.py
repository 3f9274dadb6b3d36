"""A question's way, to be read aloud: plan → route → {lexical, semantic, graph} at once → fuse → expand → rerank → refuse or trim → pack → answer → judge."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

from retrieval.answer.drafts import Draft
from retrieval.answer.extractive import extractive_answer
from retrieval.answer.model import written_answer
from retrieval.answer.quotables import Quotable, quotables
from retrieval.answer.spoken import Spoken
from retrieval.basis import basis_of
from retrieval.channels import Ask, embedding
from retrieval.conclude import conclude, missing_collections, suits
from retrieval.expand import RankedParent
from retrieval.looked import Asked, Looked, numbers_of, with_contexts, with_results
from retrieval.plan import plan
from retrieval.profiles import Profiles
from retrieval.ranking import Looking, Ranking, rank
from retrieval.refuse import Suitability, judge_suitability
from retrieval.rehearsal import Rehearsal, ranked
from retrieval.remembered import Outcome, R, RememberedAnswers, RememberedQuestions
from retrieval.route import channels_of, escalated, route
from retrieval.runs import Publish, answered, discard, received
from retrieval.states import StateReader, Unpack
from retrieval.timing import Clock, Stopwatch
from schemas.errors import AnabranchError, InvalidRequest, ModelOutput
from schemas.ports.engines import Blobs, Chat, EmbeddedQuery, Embedder, Languages, Names, Reranker, Sentences
from schemas.ports.search import Search, Snapshot, Standing
from schemas.principals import Principal
from schemas.profiles import Profile
from schemas.questions import (
    Channel,
    Debug,
    QueryRequest,
    QueryResponse,
    Route,
    SearchRequest,
    SearchResponse,
    Tell,
    Trace,
    untold,
)


class Retriever:
    """Answers questions. Every method raises InvalidRequest (unknown profile), NotFound (unknown generation), and EngineUnavailable or
    DatabaseUnavailable when no channel answers; a single lost channel is named in the trace instead."""

    def __init__(
        self,
        search: Search,
        embedder: Embedder,
        reranker: Reranker | None,
        chat: Chat | None,
        blobs: Blobs,
        languages: Languages,
        sentences: Sentences,
        names: Names,
        unpack_states: Unpack,
        profiles: Profiles,
        clock: Clock,
        publish: Publish = discard,
        *,
        answers: RememberedAnswers | None = None,
        questions: RememberedQuestions | None = None,
    ) -> None:
        self._search, self._embedder, self._reranker, self._chat = search, embedder, reranker, chat
        self._languages, self._sentences, self._names = languages, sentences, names
        self._answers, self._questions = answers, questions
        self._states, self._profiles, self._clock, self._publish = StateReader(blobs, unpack_states), profiles, clock, publish

    async def search(self, caller: Principal, request: SearchRequest, run_id: UUID, *, generation: str | None = None) -> SearchResponse:
        """Ranked parents without an answer: neither refused nor trimmed. `generation` is asked where the request names none."""
        asked = self._received(caller, request, run_id, generation)
        return (await self._once(asked, SearchResponse, self._searched)).response

    async def query(self, caller: Principal, request: QueryRequest, run_id: UUID, tell: Tell = untold, *, generation: str | None = None) -> QueryResponse:
        """An answer from cited passages, or a refusal in the question's language. Steps are told as they happen, and with `stream` the model's words."""
        asked = self._received(caller, request, run_id, generation, tell)
        found = await self._once(asked, QueryResponse, self._answered)
        debug = Debug(candidates=found.fact.candidates, numbers=found.fact.numbers)
        return found.response.model_copy(update={"debug": debug}) if request.debug else found.response

    async def rehearse(self, caller: Principal, request: SearchRequest) -> Rehearsal:
        """As `query` for a QueryRequest and as `search` for any other, but nothing of it is published."""
        asked = self._asked(caller, request, UUID(int=0))
        if not isinstance(request, QueryRequest):
            looked = await self._look(asked, read_contexts=False)
            refused = looked.suitability.refused and asked.profile.answer.refuse
            return Rehearsal(looked.generation, ranked(asked, looked), refused, self._trace(asked, looked, None))
        looked = await self._look(asked, read_contexts=True)
        draft = await self._answer(asked, looked) if suits(asked, looked) else None
        response = conclude(asked, looked, draft, lambda: self._trace(asked, looked, draft))
        return Rehearsal(looked.generation, ranked(asked, looked), response.refused, response.trace)

    async def rank_documents(self, caller: Principal, request: SearchRequest, depth: int = 100) -> list[tuple[UUID, str | None, float]]:
        """(document id, external id, score), each document by its best parent, before refusal and trimming; a folded document comes right behind the one
        it was folded under. A single requested channel is measured by itself: no word pairs, no reranking."""
        asked = self._asked(caller, request, UUID(int=0))
        if request.channels is not None and len(request.channels) == 1:
            asked = replace(asked, profile=alone(asked.profile))
        routed = route(request, asked.plan)
        async with self._search.snapshot(request.generation, caller.readers) as snapshot:
            ranking = await self._rank(asked, routed, snapshot, depth)
        return documents(ranking.parents)[:depth]

    def _received(self, caller: Principal, request: SearchRequest, run_id: UUID, generation: str | None, tell: Tell = untold) -> Asked:
        asked = replace(self._asked(caller, request, run_id, tell), generation=request.generation or generation, from_memory=True)
        self._publish(received(run_id, caller, request, self._clock()))
        return asked

    def _asked(self, caller: Principal, request: SearchRequest, run_id: UUID, tell: Tell = untold) -> Asked:
        watch = Stopwatch(self._clock, tell)
        profile = self._profiles.get(request.profile)
        with watch.step("plan"):
            planned = plan(request.query, request.language, self._languages, self._names)
        return Asked(caller, run_id, request, profile, planned, watch, tell, request.generation)

    async def _once(self, asked: Asked, kind: type[R], ask: Callable[[Asked], Awaitable[Outcome[R]]]) -> Outcome[R]:
        """Published for its own run, also where it was found in memory."""
        if self._answers is None or asked.key is None:
            outcome = await ask(asked)
        else:
            outcome, remembered = await self._answers.answer(asked.key, kind, lambda: ask(asked))
            outcome = outcome.again(asked.run_id, self._clock(), asked.watch.finished()) if remembered else outcome
        self._publish(outcome.fact)
        return outcome

    async def _searched(self, asked: Asked) -> Outcome[SearchResponse]:
        looked = await self._look(asked, read_contexts=False)
        trace = self._trace(asked, looked, None)
        response = SearchResponse(run_id=asked.run_id, generation=looked.generation, results=list(looked.results), trace=trace)
        fact = answered(asked.caller.tenant, response, looked.ranking, numbers_of(looked), self._clock(), basis_of(asked, looked, None))
        return Outcome(response, fact, looked.standing)

    async def _answered(self, asked: Asked) -> Outcome[QueryResponse]:
        looked = await self._look(asked, read_contexts=True)
        draft = await self._answer(asked, looked) if suits(asked, looked) else None
        response = conclude(asked, looked, draft, lambda: self._trace(asked, looked, draft))
        fact = answered(asked.caller.tenant, response, looked.ranking, numbers_of(looked), self._clock(), basis_of(asked, looked, draft))
        return Outcome(response, fact, None if draft and draft.lost else looked.standing)

    async def _look(self, asked: Asked, *, read_contexts: bool) -> Looked:
        """Again with all channels, once, where a rule had chosen fewer and they found nothing that suits."""
        routed = route(asked.request, asked.plan)
        looked = await self._look_by(asked, routed, read_contexts)
        wider = escalated(routed, f"{routed.mode} alone: {looked.suitability.reason}") if looked.suitability.refused else None
        if wider is None:
            return looked
        again = await self._look_by(asked, wider, read_contexts)
        return replace(again, standing=looked.standing and again.standing and looked.standing)

    async def _look_by(self, asked: Asked, routed: Route, read_contexts: bool) -> Looked:
        async with self._search.snapshot(asked.generation, asked.caller.readers) as snapshot:
            ranking = await self._rank(asked, routed, snapshot, None)
            suitability = self._suitability(asked, ranking)
            standing = Standing(asked.caller.tenant, snapshot.generation.name, snapshot.state) if ranking.whole else None
            wanted = asked.request.filters.collections
            missing = tuple(await snapshot.missing_collections(asked.caller.tenant, wanted)) if wanted else ()
            looked = Looked(snapshot.generation.name, routed, ranking, suitability, missing_collections=missing, standing=standing)
            with asked.watch.step("read"):
                return await (with_contexts if read_contexts else with_results)(asked, looked, snapshot)

    async def _rank(self, asked: Asked, routed: Route, snapshot: Snapshot, depth: int | None) -> Ranking:
        channels = channels_of(routed, asked.request, asked.profile)
        if not channels:
            raise InvalidRequest("Every channel that was asked for is switched off.", code="NO_CHANNEL", remedy="Name other channels, or another profile.")
        reranker = self._reranker if asked.profile.rerank.reranker == "default" else None
        wanted = "semantic" in channels or (reranker is not None and reranker.role == "added")
        embed = partial(self._questions.embed_query, asked.caller) if self._questions and asked.from_memory else self._embedder.embed_query
        query = embedding(embed, asked.plan.question, wanted=wanted)
        ask = Ask(asked.caller.tenant, asked.plan, asked.profile, asked.request.filters, _candidates(asked, depth))
        try:
            looking = Looking(snapshot, reranker, self._states, self._clock, asked.watch)
            return await rank(looking, ask, channels, query, depth or max(asked.request.k, asked.profile.rerank.keep), depth)
        finally:
            await _settled(query)

    def _suitability(self, asked: Asked, ranking: Ranking) -> Suitability:
        looked = self._reranker if ranking.reranked and ranking.reranked.done else None
        return judge_suitability(ranking.parents, asked.plan, ranking.idf, looked, ranking.found.embedded, asked.profile.answer)

    async def _answer(self, asked: Asked, looked: Looked) -> Draft:
        with asked.watch.step("answer"):
            return await self._draft(asked, looked)

    async def _draft(self, asked: Asked, looked: Looked) -> Draft:
        """By the chat model where there is one; quoted where there is none, or where it does not answer."""
        items = quotables(looked.contexts, self._sentences)
        if self._chat is not None and asked.profile.answer.model == "default":
            try:
                async with asyncio.timeout(asked.profile.answer.timeout_s):
                    return await written_answer(looked.contexts, items, asked.plan, self._chat, Spoken(asked.tell).hear if asked.streams else None)
            except (AnabranchError, TimeoutError) as error:
                return _instead(await self._quoted(asked, looked, items), self._chat.model, error, asked.profile.answer.timeout_s)
        return await self._quoted(asked, looked, items)

    async def _quoted(self, asked: Asked, looked: Looked, items: Sequence[Quotable]) -> Draft:
        """Servers that were away for the ranking are not asked again."""
        query, reranked = looked.ranking.found.embedded, looked.ranking.reranked
        usable = self._reranker is not None and (reranked.done if reranked else self._reranker.role == "added")
        return await extractive_answer(items, asked.plan, query, self._embedder, self._reranker if usable else None, asked.profile.rerank.timeout_s)

    def _trace(self, asked: Asked, looked: Looked, draft: Draft | None) -> Trace:
        ranking, found = looked.ranking, looked.ranking.found
        reranked = ranking.reranked is not None and ranking.reranked.done
        models = {"embed": self._embedder.model} if found.embedded else {}
        return Trace(
            generation=looked.generation,
            profile=asked.profile.name,
            route=looked.route,
            channels=dict(found.traces),
            channels_used=list(found.traces),
            channels_failed=dict(found.failed),
            lexical=found.lexical.exactness if found.lexical else None,
            timings_ms=asked.watch.finished(),
            reranker=self._reranker.name if self._reranker and reranked else None,
            max_rerank_score=looked.suitability.best if reranked else None,
            threshold=looked.suitability.threshold,
            calibrated=False,
            models={**models, **({"answer": draft.model} if draft else {})},
            model_calls=draft.calls if draft else 0,
            tokens=draft.tokens if draft else 0,
            notes=[*ranking.notes, *missing_collections(looked)],
        )


async def _settled(query: asyncio.Task[EmbeddedQuery] | None) -> None:
    """No task outlives its question; what it raised has been told by the channel that needed it."""
    if query is not None:
        query.cancel()
        await asyncio.gather(query, return_exceptions=True)


def _candidates(asked: Asked, depth: int | None) -> dict[Channel, int]:
    profile, least = asked.profile, max(depth or 0, asked.request.k)
    return {"lexical": max(profile.lexical.k, least), "semantic": max(profile.semantic.k, least), "graph": max(profile.graph.k, least)}


def _instead(quoted: Draft, model: str, error: AnabranchError | TimeoutError, timeout_s: float) -> Draft:
    """The quoted answer, which says why it is not a written one and what the failure cost."""
    why = error.detail if isinstance(error, AnabranchError) else f"no answer within {timeout_s:g} s"
    note = f"The chat model {model} gave no usable answer ({why}); the answer is quoted instead."
    spent = error if isinstance(error, ModelOutput) else None
    return replace(quoted, limitations=(note, *quoted.limitations), calls=spent.calls if spent else 1, tokens=spent.tokens if spent else 0, lost=True)


def alone(profile: Profile) -> Profile:
    """A channel by itself, as it is measured against others: nothing added to its scores."""
    return profile.model_copy(
        update={"fusion": profile.fusion.model_copy(update={"bigram": 0.0}), "rerank": profile.rerank.model_copy(update={"reranker": "none"})}
    )


def documents(parents: Sequence[RankedParent]) -> list[tuple[UUID, str | None, float]]:
    """Documents in the order of their best parents, those of folded parents right behind."""
    ranked: dict[UUID, tuple[UUID, str | None, float]] = {}
    for parent in parents:
        for item in (parent, *parent.duplicates):
            ranked.setdefault(item.document_id, (item.document_id, item.best.chunk.external_id, parent.score))
    return list(ranked.values())
