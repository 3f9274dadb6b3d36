"""How well refusal tells questions that the documents answer from near misses, by the rule in use and by the reranker's score alone.

    python -m benchmarks.refusal                      our own questions: English and Portuguese, also across languages
    python -m benchmarks.refusal PATH/TO/faquad …     retrieval test sets with every second document left out

Near misses are about a document and not answered by any. `hidden` are answered questions whose document is filtered out.
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

from anabranch.composition.overrides import now
from anabranch.evaluating import CALLER, ingested
from anabranch.settings import Settings
from anabranch.throwaway import Trial, trial
from benchmarks.harness import quiet, report
from benchmarks.refusal_set import Question, documents, questions
from engines.rerank.maxsim import THRESHOLD
from evaluation.retrieval_set import RetrievalSet, read_retrieval_set
from schemas.events import Content, DocumentReceived
from schemas.questions import Filters, QueryRequest
from streams.codec import Codec
from streams.submission import submission


@dataclass(frozen=True, slots=True)
class Asked:
    """`margin` is how far the best passage lies above its threshold, `alone` the same by the best score and the engine's threshold."""

    answered: bool
    split: str
    margin: float
    alone: float
    right: bool = False


async def ask(running: Trial, text: str, filters: Filters, question: Question | None = None) -> tuple[float, float, bool]:
    response = await running.retriever.query(CALLER, QueryRequest(query=text, filters=filters, debug=True), UUID(int=0))
    numbers = response.debug.numbers["refusal"] if response.debug else {}
    if numbers.get("best") is None:
        return -1.0, -1.0, False
    scores = [candidate["rerank_score"] for candidate in (response.debug.candidates if response.debug else []) if candidate.get("rerank_score") is not None]
    quoted = " ".join(" ".join(citation.quote for citation in response.citations).split())
    right = question is not None and any(text in quoted for text in question.says)
    return numbers["best"] - numbers["threshold"], max(scores, default=0.0) - numbers["background"] - THRESHOLD, right


async def own_set() -> dict[str, Any]:
    asked = questions()
    async with trial(Settings()) as running:
        await _take_in(running, documents())
        across = [question for question in asked if question.written != question.language]
        within = [question for question in asked if question.written == question.language]
        answered = [question for question in asked if question.answered]
        groups: dict[str, tuple[Sequence[Question], Callable[[Question], Filters]]] = {
            "within a language": (within, lambda question: Filters()),
            "across, both languages there": (across, lambda question: Filters()),
            "across, the other language alone": (across, lambda question: Filters(languages=[question.written])),
            "hidden": (answered, lambda question: Filters(external_ids=[path.name for path in documents() if path.name != question.document])),
        }  # fmt: skip
        found = {name: [await _asked(running, question, of(question), name != "hidden") for question in group] for name, (group, of) in groups.items()}
    return {"documents": len(documents()), "questions": len(asked), "groups": {name: by_split(lines) for name, lines in found.items()}}


async def _asked(running: Trial, question: Question, filters: Filters, answerable: bool) -> Asked:
    margin, alone, right = await ask(running, question.text, filters, question)
    return Asked(question.answered and answerable, question.split, margin, alone, right)


async def _take_in(running: Trial, paths: Sequence[Path]) -> None:
    """Returns once all are searchable; a file's name becomes its external id."""
    codec = Codec()
    for path in paths:
        content = Content(base64=base64.b64encode(path.read_bytes()).decode())
        fact = DocumentReceived(external_id=path.name, filename=path.name, content=content)
        await running.storage.log.append([await submission(fact, path.name, source="benchmark", time=now(), codec=codec)])
    while await running.storage.pool.fetchval("select count(*) from visible") < len(paths):
        running.check()
        await asyncio.sleep(0.2)


async def test_set(path: Path, most: int) -> dict[str, Any]:
    """Answered are questions with a relevant document that was kept."""
    test = read_retrieval_set(path)
    kept = test.documents[::2]
    async with trial(Settings()) as running:
        await ingested(running, kept)
        lines = [await _of_set(running, test, {document.id for document in kept}, query.id, query.text) for query in _spread(test, most)]
    return {"set": test.name, "documents": len(kept), "questions": len(lines), "groups": {"all": summary(lines)}}


def _spread(test: RetrievalSet, most: int) -> list[Any]:
    judged = [query for query in test.queries if test.relevant.get(query.id)]
    return judged[:: max(1, len(judged) // most)]


async def _of_set(running: Trial, test: RetrievalSet, kept: set[str], query_id: str, text: str) -> Asked:
    margin, alone, _ = await ask(running, text, Filters())
    return Asked(bool(kept.intersection(test.relevant[query_id])), "all", margin, alone)


def by_split(lines: Sequence[Asked]) -> dict[str, Any]:
    return {split: summary([line for line in lines if line.split == split]) for split in ("tune", "held_out")}


def summary(lines: Sequence[Asked]) -> dict[str, Any]:
    answered = sum(line.answered for line in lines)
    figures = {"answered": answered, "not": len(lines) - answered, "right": _share(lines, True, lambda line: line.right)}
    return {**figures, "rule": _told_apart(lines, lambda line: line.margin), "score alone": _told_apart(lines, lambda line: line.alone)}


def _told_apart(lines: Sequence[Asked], value: Callable[[Asked], float]) -> dict[str, float | None]:
    """`value` is negative where the question is refused."""
    return {
        "auc": auc([value(line) for line in lines if line.answered], [value(line) for line in lines if not line.answered]),
        "false_refusals": _share(lines, True, lambda line: value(line) < 0),
        "false_answers": _share(lines, False, lambda line: value(line) >= 0),
    }


def _share(lines: Sequence[Asked], answered: bool, holds: Callable[[Asked], bool]) -> float | None:
    those = [line for line in lines if line.answered == answered]
    return round(sum(map(holds, those)) / len(those), 3) if those else None


def auc(positive: Sequence[float], negative: Sequence[float]) -> float | None:
    """Area under the ROC curve: the chance that one of the first scores above one of the second, ties half."""
    if not positive or not negative:
        return None
    left, right = np.array(positive)[:, None], np.array(negative)[None, :]
    return round(float((left > right).mean() + (left == right).mean() / 2), 3)


async def measure(folders: Sequence[Path], most: int) -> list[dict[str, Any]]:
    return [await test_set(folder, most) for folder in folders] if folders else [await own_set()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--questions", type=int, default=200, help="of a test set, spread over it")
    given = parser.parse_args()
    quiet()
    for figures in asyncio.run(measure(given.folders, given.questions)):
        report({"benchmark": "refusal", **figures})


if __name__ == "__main__":
    main()
