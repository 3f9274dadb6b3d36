"""How well refusals separate answerable questions from near misses.

    python -m benchmarks.refusal                      own English and Portuguese questions
    python -m benchmarks.refusal PATH/TO/faquad …     test sets without every second document

Measures the rule in use and the reranker's score alone. Near misses are about a document but not
answered by any. `hidden` are answerable questions whose document is filtered out.
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
from engines.rerank.maxsim import THRESHOLD
from evaluation.retrieval_eval import read_retrieval_set
from retrieval.evidence_model import EVIDENCE_MODEL
from schemas.events import Content, DocumentReceived
from schemas.questions import Filters, QueryRequest
from schemas.timestamps import utc_now
from streams.codec import Codec
from streams.publisher import build_raw_record


@dataclass(frozen=True, slots=True)
class ScoredQuestion:
    """A question with its distance from refusal.

    `margin` is the distance of the estimated probability from the one that refuses. `score_margin`
    uses only the best score and the engine's threshold.
    """

    is_answerable: bool
    split: str
    margin: float
    score_margin: float
    is_right: bool = False


async def score_question(
    stack: EphemeralStack, text: str, filters: Filters, question: RefusalQuestion | None = None
) -> tuple[float, float, bool]:
    response = await stack.retriever.query(
        CALLER, QueryRequest(query=text, filters=filters, debug=True), UUID(int=0)
    )
    numbers = response.debug.numbers["refusal"] if response.debug else {}
    if numbers.get("probability") is None:
        return -1.0, -1.0, False
    scores = [
        candidate["rerank_score"]
        for candidate in (response.debug.candidates if response.debug else [])
        if candidate.get("rerank_score") is not None
    ]
    quotes_text = " ".join(" ".join(citation.quote for citation in response.citations).split())
    is_right = question is not None and any(
        text in quotes_text for text in question.expected_quotes
    )
    return (
        -1.0 if numbers["missing_terms"] else numbers["probability"] - EVIDENCE_MODEL.refuse_below,
        max(scores, default=0.0) - numbers["background"] - THRESHOLD,
        is_right,
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
        scored: dict[str, list[ScoredQuestion]] = {name: [] for name in groups}
        for name, (group, filters_for) in groups.items():
            for question in group:
                margin, score_margin, is_right = await score_question(
                    stack, question.text, filters_for(question), question
                )
                scored[name].append(
                    ScoredQuestion(
                        question.is_answerable and name != "hidden",
                        question.split,
                        margin,
                        score_margin,
                        is_right,
                    )
                )
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
    scored = []
    async with start_ephemeral_stack(Settings()) as stack:
        await ingest_documents(stack, ingested_documents)
        for query in judged_queries[:: max(1, len(judged_queries) // max_questions)]:
            margin, score_margin, _ = await score_question(stack, query.text, Filters())
            is_answerable = bool(ingested_ids.intersection(retrieval_set.relevant[query.id]))
            scored.append(ScoredQuestion(is_answerable, "all", margin, score_margin))
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
    n_answerable = sum(question.is_answerable for question in scored)
    figures = {
        "answered": n_answerable,
        "not": len(scored) - n_answerable,
        "right": _ratio(scored, True, lambda question: question.is_right),
    }
    return {
        **figures,
        "rule": _measure_separation(scored, lambda question: question.margin),
        "score alone": _measure_separation(scored, lambda question: question.score_margin),
    }


def _measure_separation(
    scored: Sequence[ScoredQuestion], value: Callable[[ScoredQuestion], float]
) -> dict[str, float | None]:
    """Measure how well `value`, negative for a refusal, separates the questions."""
    return {
        "auc": compute_auc(
            [value(question) for question in scored if question.is_answerable],
            [value(question) for question in scored if not question.is_answerable],
        ),
        "false_refusals": _ratio(scored, True, lambda question: value(question) < 0),
        "false_answers": _ratio(scored, False, lambda question: value(question) >= 0),
    }


def _ratio(
    scored: Sequence[ScoredQuestion], answerable: bool, predicate: Callable[[ScoredQuestion], bool]
) -> float | None:
    matching = [question for question in scored if question.is_answerable == answerable]
    return round(sum(map(predicate, matching)) / len(matching), 3) if matching else None


def compute_auc(positive: Sequence[float], negative: Sequence[float]) -> float | None:
    """Return the area under the ROC curve, with ties counted half."""
    if not positive or not negative:
        return None
    positives, negatives = np.array(positive)[:, None], np.array(negative)[None, :]
    return round(float((positives > negatives).mean() + (positives == negatives).mean() / 2), 3)


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
