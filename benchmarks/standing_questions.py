"""CPU seconds of an ingest with 10,000 saved questions, relative to one without.

Documents of random words with the frequencies of English, small ones, so that matching weighs most.
Ingested three times: without questions, with them, and without them again. CPU is that of this
process, its children and all Postgres processes; worker and API share the process. The questions
are stored as they are after an answer, with random vectors, and belong to a key that does not
exist: `due` counts those that a document could matter to, which is all that is measured; none is
asked.

python -m benchmarks.standing_questions --documents 300 --questions 10000 --local 1
"""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import Any
from uuid import uuid4

import numpy as np

from anabranch.config.overrides import Overrides
from benchmarks.harness import (
    BenchmarkPipeline,
    fetch_postmaster,
    make_natural_texts,
    make_text_records,
    run_benchmark,
    run_pipeline,
    serve_api,
)
from benchmarks.null_engines import NullParser, make_null_overrides
from benchmarks.processes import measure_tree_cpu, walk_tree
from schemas.events import QuestionSaved
from schemas.principals import Principal
from schemas.standing_questions import StandingQuestionRequest
from schemas.timestamps import utc_now
from sql.index.standing_questions import AskedQuestion, PgStandingQuestions, StandingAnswer

WARM_UP = 50
ANSWER_INTERVAL = timedelta(seconds=1)
SETTLE_S = 3.0
"""In which the last outcomes are matched; an idle API polls in each phase alike."""


async def save_questions(bench: BenchmarkPipeline, texts: list[str], dimension: int) -> None:
    tables = PgStandingQuestions(bench.worker.storage.pool)
    random = np.random.default_rng(5)
    for number, text in enumerate(texts, 1):
        request = StandingQuestionRequest(query=text)
        saved = QuestionSaved(
            question_id=uuid4(),
            tenant="default",
            asked_by="key:none",
            request=request,
            saved_at=utc_now(),
        )
        await tables.write(saved)
        vector = random.normal(size=dimension).astype(np.float32)
        answer = StandingAnswer(
            uuid4(),
            utc_now() - number * ANSWER_INTERVAL,
            [],
            "g1",
            "en",
            vector / np.linalg.norm(vector),
            0.9,
        )
        asked = AskedQuestion(saved.question_id, Principal("local", "default"), request, None)
        await tables.record_answer(asked, answer, None)
        pool = bench.worker.storage.pool
        await pool.execute(
            "update standing_questions set due_at = null where id = $1", saved.question_id
        )


async def measure(documents: int, questions: int, words: int, local: int) -> dict[str, Any]:
    overrides = Overrides(parser=NullParser()) if local else make_null_overrides()
    texts = make_natural_texts(WARM_UP + 3 * documents, words)
    records = await make_text_records(texts)
    async with run_pipeline(overrides) as bench, serve_api(bench.settings, bench.dsn, overrides):
        pool = bench.worker.storage.pool
        postmaster = await fetch_postmaster(pool)

        def read_cpu_s() -> float:
            own = measure_tree_cpu(os.getpid())
            is_child = postmaster in set(walk_tree(os.getpid()))
            return own if is_child else own + measure_tree_cpu(postmaster)

        done = 0

        async def ingest(count: int) -> float:
            nonlocal done
            started = read_cpu_s()
            await bench.push(records[done : done + count])
            done += count
            await bench.wait_until_searchable(done, poll_s=0.2)
            await asyncio.sleep(SETTLE_S)
            return (read_cpu_s() - started) / count * 1000

        await ingest(WARM_UP)
        before = await ingest(documents)
        await save_questions(
            bench,
            make_natural_texts(questions, 9, seed=11),
            bench.worker.generation.config.embed.dimension,
        )
        await pool.execute("analyze standing_questions, standing_terms")
        with_questions = await ingest(documents)
        due = await pool.fetchval(
            "select count(*) from standing_questions where due_at is not null"
        )
        await pool.execute("truncate standing_questions cascade")
        after = await ingest(documents)
    without = (before + after) / 2
    return {
        "benchmark": "standing_questions",
        "documents": documents,
        "words": words,
        "questions": questions,
        "engines": "local" if local else "none",
        "due": due,
        "cpu_ms_without": [round(before, 2), round(after, 2)],
        "cpu_ms_with": round(with_questions, 2),
        "cpu_ms_of_matching": round(with_questions - without, 2),
        "ratio": round(with_questions / without, 4),
    }


if __name__ == "__main__":
    run_benchmark(measure, __doc__, documents=300, questions=10_000, words=150, local=1)
