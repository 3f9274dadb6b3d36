"""The caches of one process that answers questions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypedDict

import structlog

from anabranch.settings import CacheSettings
from retrieval.remembered import Note, RememberedAnswers, RememberedQuestions
from retrieval.timing import Clock
from schemas.ports.engines import Embedder
from sql.index_changes import PgIndexChanges
from sql.pool import Pool

log = structlog.get_logger(__name__)
TIDY_S = 1.0


class Caches(TypedDict, total=False):
    answers: RememberedAnswers | None
    questions: RememberedQuestions | None


@asynccontextmanager
async def remembering(settings: CacheSettings, pool: Pool, embedder: Embedder, clock: Clock, note: Note) -> AsyncIterator[Caches]:
    """For one embedder. What no longer holds is let go of within a second."""
    questions = RememberedQuestions(embedder, most=settings.embeddings, note=note) if settings.embeddings else None
    if not settings.answers:
        yield Caches(questions=questions)
        return
    answers = RememberedAnswers(PgIndexChanges(pool), clock, most=settings.answers, keeps=timedelta(seconds=settings.seconds), note=note)
    tidying = asyncio.create_task(tidied(answers))
    try:
        yield Caches(answers=answers, questions=questions)
    finally:
        tidying.cancel()
        await asyncio.gather(tidying, return_exceptions=True)


async def tidied(answers: RememberedAnswers) -> None:
    """Until cancelled."""
    while True:
        await asyncio.sleep(TIDY_S)
        try:
            await answers.tidy()
        except Exception:
            # Who stopped here would keep what is erased later.
            log.exception("answers that were remembered are let go of: they could not be compared with the tables")
