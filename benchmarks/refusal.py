"""How well refusals separate answerable questions from near misses.

    python -m benchmarks.refusal                      own English and Portuguese questions
    python -m benchmarks.refusal PATH/TO/faquad …     test sets without every second document

Measures the decisions of the product, and how well the probability behind them separates. Near
misses are about a document but not answered by any. `hidden` are answerable questions whose
document is filtered out.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from anabranch.config.settings import Settings
from anabranch.eval.runner import CALLER, EphemeralStack, ingest_documents, start_ephemeral_stack
from benchmarks.harness import print_report, silence_logs
from benchmarks.refusal_set import RefusalQuestion, list_documents, load_questions
from evaluation.retrieval_eval import read_retrieval_set
from schemas.events import Content, DocumentReceived
from schemas.questions import Filters, QueryRequest
from schemas.timestamps import utc_now
from streams.codec import Codec
from streams.publisher import build_raw_record

# The share of answerable questions that may be refused, at which false answers are compared.
FALSE_REFUSALS = 0.05


@dataclass(frozen=True, slots=True)
class ScoredQuestion:
    """A question with the decision about it.

    `score` is the estimated probability, less 1 for a refusal: refused questions come last, also
    those that a rule refuses whatever their probability. `is_right` is None where no quote is
    expected.
    """

    is_answerable: bool
    split: str
    is_refused: bool
    score: float
    is_right: bool | None


async def score_question(
    stack: EphemeralStack,
    text: str,
    filters: Filters,
    *,
    is_answerable: bool,
    split: str = "all",
    expected_quotes: Sequence[str] = (),
) -> ScoredQuestion:
    response = await stack.retriever.query(
        CALLER, QueryRequest(query=text, filters=filters, debug=True), UUID(int=0)
    )
    numbers = response.debug.numbers["refusal"] if response.debug else {}
    # None where nothing was found.
    probability = numbers.get("probability") or 0.0
    quotes_text = " ".join(" ".join(citation.quote for citation in response.citations).split())
    return ScoredQuestion(
        is_answerable,
        split,
        response.refused,
        probability - response.refused,
        any(quote in quotes_text for quote in expected_quotes) if expected_quotes else None,
    )


async def measure_own_set() -> dict[str, Any]:
    all_questions = load_questions()
    async with start_ephemeral_stack(Settings()) as stack:
        await _ingest_files(stack, list_documents())
        across_languages = [
            question
            for question in all_questions
            if question.document_language != question.language
        ]
        within_language = [
            question
            for question in all_questions
            if question.document_language == question.language
        ]
        answerable = [question for question in all_questions if question.is_answerable]
        groups: dict[
            str, tuple[Sequence[RefusalQuestion], Callable[[RefusalQuestion], Filters]]
        ] = {
            "within a language": (within_language, lambda question: Filters()),
            "across, both languages there": (across_languages, lambda question: Filters()),
            "across, the other language alone": (
                across_languages,
                lambda question: Filters(languages=[question.document_language]),
            ),
            "hidden": (
                answerable,
                lambda question: Filters(
                    external_ids=[
                        path.name for path in list_documents() if path.name != question.document
                    ]
                ),
            ),
        }
        scored = {
            name: [
                await score_question(
                    stack,
                    question.text,
                    filters_for(question),
                    is_answerable=question.is_answerable and name != "hidden",
                    split=question.split,
                    expected_quotes=question.expected_quotes,
                )
                for question in group
            ]
            for name, (group, filters_for) in groups.items()
        }
    return {
        "documents": len(list_documents()),
        "questions": len(all_questions),
        "groups": {name: summarize_by_split(lines) for name, lines in scored.items()},
    }


async def _ingest_files(stack: EphemeralStack, paths: Sequence[Path]) -> None:
    """Ingest files and wait until all are searchable. The file name becomes the external id."""
    codec = Codec()
    for path in paths:
        content = Content(base64=base64.b64encode(path.read_bytes()).decode())
        data = DocumentReceived(external_id=path.name, filename=path.name, content=content)
        await stack.storage.log.append(
            [
                await build_raw_record(
                    data, path.name, source="benchmark", time=utc_now(), codec=codec
                )
            ]
        )
    while await stack.storage.pool.fetchval("select count(*) from visible") < len(paths):
        stack.check_worker()
        await asyncio.sleep(0.2)


async def measure_test_set(path: Path, max_questions: int) -> dict[str, Any]:
    """Measure a test set. Questions are answerable if a relevant document was ingested."""
    retrieval_set = read_retrieval_set(path)
    ingested_documents = retrieval_set.documents[::2]
    ingested_ids = {document.id for document in ingested_documents}
    judged_queries = [
        query for query in retrieval_set.queries if retrieval_set.relevant.get(query.id)
    ]
    async with start_ephemeral_stack(Settings()) as stack:
        await ingest_documents(stack, ingested_documents)
        scored = [
            await score_question(
                stack,
                query.text,
                Filters(),
                is_answerable=bool(ingested_ids.intersection(retrieval_set.relevant[query.id])),
            )
            for query in judged_queries[:: max(1, len(judged_queries) // max_questions)]
        ]
    return {
        "set": retrieval_set.name,
        "documents": len(ingested_documents),
        "questions": len(scored),
        "groups": {"all": summarize(scored)},
    }


def summarize_by_split(scored: Sequence[ScoredQuestion]) -> dict[str, Any]:
    return {
        split: summarize([question for question in scored if question.split == split])
        for split in ("tune", "held_out")
    }


def summarize(scored: Sequence[ScoredQuestion]) -> dict[str, Any]:
    answerable = [question for question in scored if question.is_answerable]
    others = [question for question in scored if not question.is_answerable]
    scores = [question.score for question in answerable], [question.score for question in others]
    return {
        "answerable": len(answerable),
        "others": len(others),
        "right": _mean(
            [question.is_right for question in answerable if question.is_right is not None]
        ),
        "false_refusals": _mean([question.is_refused for question in answerable]),
        "false_answers": _mean([not question.is_refused for question in others]),
        "auc": compute_auc(*scores),
        "false_answers_at_5_percent": compute_false_answers(*scores),
    }


def _mean(values: Sequence[bool]) -> float | None:
    return round(sum(values) / len(values), 3) if values else None


def compute_auc(positive: Sequence[float], negative: Sequence[float]) -> float | None:
    """Return the area under the ROC curve, with ties counted half."""
    if not positive or not negative:
        return None
    positives, negatives = np.array(positive)[:, None], np.array(negative)[None, :]
    return round(float((positives > negatives).mean() + (positives == negatives).mean() / 2), 3)


def compute_false_answers(
    positive: Sequence[float], negative: Sequence[float], false_refusals: float = FALSE_REFUSALS
) -> float | None:
    """Return the share of the unanswerable that reach the score that refuses `false_refusals` of
    the answerable.
    """
    if not positive or not negative:
        return None
    threshold = sorted(positive)[int(false_refusals * len(positive))]
    return round(sum(score >= threshold for score in negative) / len(negative), 3)


async def measure(folders: Sequence[Path], max_questions: int) -> list[dict[str, Any]]:
    return (
        [await measure_test_set(folder, max_questions) for folder in folders]
        if folders
        else [await measure_own_set()]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument(
        "--questions",
        type=int,
        default=200,
        help="Number of questions per test set, evenly spaced.",
    )
    arguments = parser.parse_args()
    silence_logs()
    for figures in asyncio.run(measure(arguments.folders, arguments.questions)):
        print_report({"benchmark": "refusal", **figures})


if __name__ == "__main__":
    main()
