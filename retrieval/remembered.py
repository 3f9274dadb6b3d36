"""What is asked again and again is not looked for again, as long as nothing that it rests on has changed."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Generic, Literal, TypeVar
from uuid import UUID

from retrieval.timing import Clock
from schemas.errors import AnabranchError, DatabaseUnavailable
from schemas.events import QueryAnswered
from schemas.ports.engines import EmbeddedQuery, Embedder
from schemas.ports.search import IndexChanges, Standing
from schemas.principals import Principal, Readers
from schemas.questions import QueryResponse, SearchResponse

R = TypeVar("R", SearchResponse, QueryResponse)
Key = tuple[str, str, str, str, str]
"""Tenant, names that the caller goes by, generation, kind of question, and the whole request as JSON."""
HOT = 2
"""Times that a question has been answered afresh before it is answered from memory: most are asked once, and who asks again may want to see it done again."""
PATIENCE_S = 10.0
"""For which a question waits for another that is the same: a model may hang, and then each is on its own."""
Cache = Literal["answers", "question_embeddings"]
Use = Literal["hit", "miss", "stale"]
Note = Callable[[Cache, Use], None]


def names_key(names: Readers) -> str:
    """What two callers share who may read the same documents of a tenant."""
    return json.dumps(None if names is None else sorted(set(names)))


def unnoted(cache: Cache, use: Use) -> None:
    """For those who count nothing."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[R]):
    """What a question came to, and what is published of it. `standing` is that of the index when it was looked at; without one it is not kept."""

    response: R
    fact: QueryAnswered
    standing: Standing | None

    def again(self, run_id: UUID, at: datetime, timings_ms: dict[str, float]) -> Outcome[R]:
        """For another run: nothing was asked of any model for it."""
        trace = self.response.trace.model_copy(update={"cached": True, "timings_ms": timings_ms, "model_calls": 0, "tokens": 0, "cost": None})
        response = self.response.model_copy(update={"run_id": run_id, "trace": trace})
        fact = self.fact.model_copy(update={"run_id": run_id, "answered_at": at, "response": response.model_dump(mode="json")})
        return replace(self, response=response, fact=fact)


@dataclass(frozen=True, slots=True)
class _Kept:
    """`outcome` is None until the question is hot: of most, which are asked once, no more is held than that they were."""

    outcome: Outcome[SearchResponse] | Outcome[QueryResponse] | None
    standing: Standing
    until: datetime
    answered: int


@dataclass(slots=True)
class _UnderWay:
    over: asyncio.Event = field(default_factory=asyncio.Event)
    found: _Kept | None = None
    """For those who waited, with its outcome."""


class RememberedAnswers:
    """At most `most`, the least recently asked goes first, each for `keeps` at most. Whether one still holds is asked of the tables each time, so that a change
    is seen by the next question, in every process."""

    def __init__(self, changes: IndexChanges, clock: Clock, *, most: int, keeps: timedelta, note: Note = unnoted, patience_s: float = PATIENCE_S) -> None:
        self._changes, self._clock, self._most, self._keeps, self._note = changes, clock, most, keeps, note
        self._patience_s = patience_s
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._unkept: OrderedDict[Key, datetime] = OrderedDict()
        """Whose last outcome was not to be kept, until when that is remembered: nobody waits for another of them, who would then have to ask all the same."""
        self._under_way: dict[Key, _UnderWay] = {}

    def __len__(self) -> int:
        return len(self._kept)

    async def answer(self, key: Key, kind: type[R], ask: Callable[[], Awaitable[Outcome[R]]]) -> tuple[Outcome[R], bool]:
        """What this question comes to, and whether that was remembered: what was answered `HOT` times since the index last changed is, and what somebody is asking
        at this moment. Raises DatabaseUnavailable, and what `ask` raises."""
        before = key in self._kept
        known = await self._find(key, kind, self._kept.get(key))
        if known is None and key not in self._unkept and (other := self._under_way.get(key)):
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience_s):
                    await other.over.wait()
            known = await self._find(key, kind, other.found or self._kept.get(key))
        self._note("answers", "hit" if known else "stale" if before and key not in self._kept else "miss")
        return (known, True) if known else (await self._asked(key, ask), False)

    async def tidy(self) -> None:
        """Lets go of what no longer holds, so that nothing that was withdrawn or erased stays in memory; of everything where the tables do not answer, whatever it
        is that they raise instead."""
        for key in [key for key, until in self._unkept.items() if until <= self._clock()]:
            del self._unkept[key]
        if not (looked_at := list(self._kept.items())):
            return
        hold = [False] * len(looked_at)
        try:
            with suppress(DatabaseUnavailable):
                hold = await self._changes.unchanged([kept.standing for _, kept in looked_at])
        finally:
            for (key, kept), holds in zip(looked_at, hold, strict=True):
                if (not holds or kept.until <= self._clock()) and self._kept.get(key) is kept:
                    del self._kept[key]

    async def _find(self, key: Key, kind: type[R], kept: _Kept | None) -> Outcome[R] | None:
        if kept is None:
            return None
        if not await self._holds(kept):
            if (now := self._kept.get(key)) and now.standing is kept.standing:
                del self._kept[key]
            return None
        if kept.outcome is None or not isinstance(kept.outcome.response, kind):
            return None
        if key in self._kept:
            self._kept.move_to_end(key)
        return Outcome(kept.outcome.response, kept.outcome.fact, kept.standing)

    async def _asked(self, key: Key, ask: Callable[[], Awaitable[Outcome[R]]]) -> Outcome[R]:
        own = _UnderWay()
        first = self._under_way.setdefault(key, own)
        try:
            outcome = await ask()
            own.found = self._keep(key, outcome)
            return outcome
        except AnabranchError:
            self._pass_over(key)
            raise
        finally:
            own.over.set()
            if first is own:
                del self._under_way[key]

    def _keep(self, key: Key, outcome: Outcome[SearchResponse] | Outcome[QueryResponse]) -> _Kept | None:
        if outcome.standing is None:
            self._pass_over(key)
            return None
        self._unkept.pop(key, None)
        before = self._kept.get(key)
        found = _Kept(outcome, outcome.standing, self._clock() + self._keeps, before.answered + 1 if before else 1)
        self._kept[key] = found if found.answered >= HOT else replace(found, outcome=None)
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return found

    def _pass_over(self, key: Key) -> None:
        self._unkept[key] = self._clock() + self._keeps
        self._unkept.move_to_end(key)
        while len(self._unkept) > self._most:
            self._unkept.popitem(last=False)

    async def _holds(self, kept: _Kept) -> bool:
        return kept.until > self._clock() and (await self._changes.unchanged([kept.standing]))[0]


class RememberedQuestions:
    """A question's vectors are always the same by one embedder, and are kept for those alone who may read the same: how fast one is answered must not tell what
    others ask. At most `most` are kept, the least recently asked goes first. Of the texts only hashes are."""

    def __init__(self, embedder: Embedder, *, most: int, note: Note = unnoted) -> None:
        self._embedder, self._most, self._note = embedder, most, note
        self._kept: OrderedDict[bytes, EmbeddedQuery] = OrderedDict()

    async def embed_query(self, caller: Principal, text: str) -> EmbeddedQuery:
        """Raises what the embedder raises."""
        key = hashlib.sha256(json.dumps([caller.tenant, names_key(caller.readers), text]).encode()).digest()
        found = self._kept.get(key)
        self._note("question_embeddings", "miss" if found is None else "hit")
        if found is None:
            found = await self._embedder.embed_query(text)
        self._kept[key] = found
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return found
