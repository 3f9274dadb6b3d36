"""Make cloze questions from passages, and summarize how a generation answered them.

A question leaves a defined term's meaning, a table cell, a date or an amount out of its passage.
Half of the questions are asked without the passage's document, so that a refusal is right. Cloze
questions share more words with their passages than those of people: they compare generations and
find weak documents, but overrate how well people are answered.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any
from uuid import UUID

from retrieval.question.answer_values import VALUE_PATTERNS, AnswerType
from schemas.exams import Exam, ExamItem, ExamKind
from schemas.ids import sha256_hex
from sql.catalog.exams import DocumentLabel, ExamPassage

MIN_CONTEXT_WORDS = 5
"""Words around a gap that make a question specific."""
MAX_CONTEXT_WORDS = 24
N_WEAKEST = 5
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_DEFINITION = re.compile(
    r"[\"“«](?P<term>[^\"”»\n]{2,60})[\"”»]\s+(?:shall |deve )?"
    r"(?:means?|refers? to|is defined as|denotes?|significa|designa|refere-se a|bedeutet|désigne)"
    r"\s",
    re.I,
)
# "When" and "how much" tell the answer's type, as people's questions do.
_LEADS: Mapping[str, Mapping[ExamKind, str]] = {
    "en": {
        "definition": "What does {subject} mean?",
        "table_cell": "What is the {column} of {subject}?",
        "date": "When: {subject}?",
        "amount": "How much: {subject}?",
    },
    "pt": {
        "definition": "O que significa {subject}?",
        "table_cell": "Qual é {column} de {subject}?",
        "date": "Quando: {subject}?",
        "amount": "Quanto: {subject}?",
    },
    "es": {
        "definition": "¿Qué significa {subject}?",
        "table_cell": "¿Cuál es {column} de {subject}?",
        "date": "¿Cuándo: {subject}?",
        "amount": "¿Cuánto: {subject}?",
    },
}
_GAPS: Sequence[tuple[ExamKind, AnswerType]] = (("amount", "money"), ("date", "date"))


@dataclass(frozen=True, slots=True)
class ExamQuestion:
    text: str
    kind: ExamKind
    passage: ExamPassage
    hidden: bool = False


def choose_questions(passages: Sequence[ExamPassage], size: int, seed: int) -> list[ExamQuestion]:
    """Return up to `size` questions, each answered by one passage.

    Kinds and documents take turns, so that neither a long document nor a frequent kind fills the
    list. Equal passages and seeds give equal questions.
    """
    by_text: dict[str, list[ExamQuestion]] = defaultdict(list)
    for passage in passages:
        for question in _make_questions(passage):
            by_text[question.text].append(question)
    # What two documents answer is neither hidden with one of them, nor has it one right passage.
    unique = [questions[0] for questions in by_text.values() if len(questions) == 1]
    unique.sort(key=lambda question: sha256_hex(f"{seed}\n{question.text}".encode()))
    turns: dict[tuple[ExamKind, UUID], int] = defaultdict(int)
    kind_turns: dict[tuple[ExamKind, int], int] = defaultdict(int)
    ordered: list[tuple[int, int, ExamQuestion]] = []
    for question in unique:
        turn = turns[question.kind, question.passage.document_id]
        turns[question.kind, question.passage.document_id] += 1
        place = kind_turns[question.kind, turn]
        kind_turns[question.kind, turn] += 1
        ordered.append((turn, place, question))
    ordered.sort(key=lambda entry: entry[:2])
    return [question for _, _, question in ordered[:size]]


def build_exam(passages: Sequence[ExamPassage], size: int, seed: int) -> list[ExamQuestion]:
    """Return up to `size` questions, answerable and hidden ones in equal number."""
    chosen = choose_questions(passages, size, seed)
    chosen = chosen[: len(chosen) - len(chosen) % 2]
    # By a second hash: alternating would hide one kind only, where kinds take turns.
    coins = sorted(chosen, key=lambda one: sha256_hex(f"hide {seed}\n{one.text}".encode()))
    hidden = {question.text for question in coins[: len(coins) // 2]}
    return [
        ExamQuestion(question.text, question.kind, question.passage, question.text in hidden)
        for question in chosen
    ]


def _make_questions(passage: ExamPassage) -> Iterator[ExamQuestion]:
    leads = _LEADS.get(passage.language or "en", _LEADS["en"])
    made = _make_cells(passage.text) if "|" in passage.text else _make_gaps(passage.text)
    for kind, subject, column in made:
        yield ExamQuestion(leads[kind].format(subject=subject, column=column), kind, passage)


def _make_gaps(text: str) -> Iterator[tuple[ExamKind, str, str]]:
    """Yield kind and subject for the sentences of running text, at most one of each."""
    for sentence in _SENTENCE_END.split(text):
        if definition := _DEFINITION.search(sentence):
            yield "definition", f"“{definition['term'].strip()}”", ""
            continue
        for kind, value_type in _GAPS:
            matches = list(VALUE_PATTERNS[value_type].finditer(sentence))
            # Two values of a kind make the gap ambiguous.
            if len(matches) != 1:
                continue
            before = sentence[: matches[0].start()].split()
            after = sentence[matches[0].end() :].split()
            half = MAX_CONTEXT_WORDS // 2
            words = [*before[-half:], "…", *after[:half]]
            if sum(any(map(str.isalpha, word)) for word in words) >= MIN_CONTEXT_WORDS:
                yield kind, " ".join(words).strip("#*>-•… ").rstrip(".:;,"), ""
                break


def _make_cells(text: str) -> Iterator[tuple[ExamKind, str, str]]:
    """Yield kind, first cell and column of each row of a Markdown table, its second cell left
    out, or the next ones by turns.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("|")]
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]
    if len(rows) < 3 or not all(set(cell) <= set(":- ") for cell in rows[1]):
        return
    header = rows[0]
    for number, row in enumerate(rows[2:]):
        if len(row) != len(header) or len(header) < 2:
            continue
        column = 1 + number % (len(header) - 1)
        if all((row[0], header[column], row[column])) and any(map(str.isalpha, row[0])):
            yield "table_cell", row[0], header[column]


def compute_share(successes: int, n: int) -> dict[str, Any]:
    """Return the share with the interval of Wilson (1927), which also holds for few questions."""
    if not n:
        return {"value": None, "low": None, "high": None, "n": 0}
    z = 1.959964
    share, scale = successes / n, 1 + z * z / n
    center = (share + z * z / (2 * n)) / scale
    margin = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / scale
    low, high = max(0.0, center - margin), min(1.0, center + margin)
    return {"value": round(share, 4), "low": round(low, 4), "high": round(high, 4), "n": n}


def summarize_exam(exam: Exam, labels: Mapping[UUID, DocumentLabel]) -> dict[str, Any]:
    """Build the report. `labels` lacks documents that were erased since."""
    by_kind: dict[str, list[ExamItem]] = defaultdict(list)
    by_collection: dict[str, list[ExamItem]] = defaultdict(list)
    by_document: dict[UUID, list[ExamItem]] = defaultdict(list)
    for item in exam.items:
        label = labels.get(item.document_id)
        by_kind[item.kind].append(item)
        by_collection[(label.collection if label else None) or ""].append(item)
        by_document[item.document_id].append(item)
    weakest = sorted(by_document, key=lambda one: (-_count_failures(by_document[one]), str(one)))
    return {
        "schema_version": 1,
        "exam_id": str(exam.exam_id),
        "generation": exam.generation,
        "profile": exam.profile,
        "seed": exam.seed,
        "completed_at": exam.completed_at,
        "questions": len(exam.items),
        "failed": exam.failed,
        "overall": _measure(exam.items),
        "kinds": {kind: _measure(items) for kind, items in sorted(by_kind.items())},
        "collections": {name: _measure(items) for name, items in sorted(by_collection.items())},
        "weakest_documents": [
            {
                "document_id": str(document_id),
                "name": labels[document_id].name if document_id in labels else None,
                "questions": len(by_document[document_id]),
                "wrong": _count_failures(by_document[document_id]),
            }
            for document_id in weakest[:N_WEAKEST]
            if _count_failures(by_document[document_id])
        ],
    }


def _measure(items: Iterable[ExamItem]) -> dict[str, Any]:
    items = list(items)
    answerable = [item for item in items if not item.hidden]
    hidden = [item for item in items if item.hidden]
    return {
        "passage_first": compute_share(sum(item.rank == 1 for item in answerable), len(answerable)),
        "passage_in_ten": compute_share(
            sum(item.rank is not None and item.rank <= 10 for item in answerable), len(answerable)
        ),
        "falsely_refused": compute_share(sum(item.refused for item in answerable), len(answerable)),
        "correctly_refused": compute_share(sum(item.refused for item in hidden), len(hidden)),
    }


def _count_failures(items: Iterable[ExamItem]) -> int:
    return sum(
        not item.refused if item.hidden else item.refused or item.rank != 1 for item in items
    )
