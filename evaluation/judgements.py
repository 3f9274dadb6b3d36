"""Map judgements to the parent chunks of a generation, and export them.

A judged range belongs to the parent chunk that overlaps it most. A quote is searched for at its
original offset, then at the nearest offset (a revision or a parser may have moved it), then
ignoring case and white space, and finally by the best partial alignment (at least 90 of 100 by
Levenshtein's ratio) in texts that are short enough.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from rapidfuzz import fuzz

from schemas.ids import sha256_hex
from schemas.judgements import GradedPassage
from sql.index.snapshot import ParentSpan

MIN_SIMILARITY = 90.0
MAX_ALIGNED_CHARS = 200_000
"""Longer texts are not aligned."""
MIN_ALIGNED_QUOTE_CHARS = 20
"""Shorter quotes are not aligned."""


@dataclass(frozen=True, slots=True)
class JudgementTarget:
    """A judged passage; without range and quote, the whole document."""

    document_id: UUID
    revision: int | None
    char_start: int | None
    char_end: int | None
    quote: str | None
    grade: int


@dataclass(frozen=True, slots=True)
class CandidateDocument:
    """A document in one generation.

    `is_text_as_judged` says that its text was produced as when ranges without a quote were judged.
    """

    document_id: UUID
    revision: int
    text: str
    parents: Sequence[ParentSpan]
    is_text_as_judged: bool = True


Grades = dict[UUID, int]
"""Grade by parent chunk, or by document for a document judged as a whole."""


def map_judgement(target: JudgementTarget, document: CandidateDocument | None) -> UUID | None:
    """Return the judged parent or document, or None if the generation has neither."""
    if document is None:
        return None
    if target.quote is None and target.char_start is None:
        return target.document_id
    span = locate_judgement(target, document)
    return _find_best_parent(span, document.parents) if span else None


def map_judgements(
    targets: Sequence[JudgementTarget], documents: Mapping[UUID, CandidateDocument]
) -> tuple[Grades, int]:
    """Return the highest grade of each judged unit, and the number of mapped judgements."""
    grades: Grades = {}
    n_mapped = 0
    for target in targets:
        unit = map_judgement(target, documents.get(target.document_id))
        if unit is not None:
            n_mapped += 1
            grades[unit] = max(target.grade, grades.get(unit, 0))
    return grades, n_mapped


def locate_judgement(
    target: JudgementTarget, document: CandidateDocument
) -> tuple[int, int] | None:
    """Return the judged range in the document's text."""
    start, end = target.char_start or 0, target.char_end or 0
    if target.quote is None:
        # A range without a quote is meaningful only in the text that was judged.
        is_same_text = (
            document.is_text_as_judged
            and target.revision in (None, document.revision)
            and start < end <= len(document.text)
        )
        return (start, end) if is_same_text else None
    if (
        target.char_start is not None
        and document.text[start : start + len(target.quote)] == target.quote
    ):
        return start, start + len(target.quote)
    # From certain to uncertain matches: the first one found counts.
    words = [re.escape(word) for word in target.quote.split()]
    return (
        _find_nearest(re.compile(re.escape(target.quote)), document.text, start)
        or (
            _find_nearest(re.compile(r"\s+".join(words), re.IGNORECASE), document.text, start)
            if words
            else None
        )
        or _find_approximate(target.quote, document.text)
    )


def _find_approximate(quote: str, text: str) -> tuple[int, int] | None:
    if len(quote) < MIN_ALIGNED_QUOTE_CHARS or len(text) > MAX_ALIGNED_CHARS:
        return None
    # partial_ratio aligns the shorter text within the longer, so the quote must be shorter.
    alignment = fuzz.partial_ratio_alignment(quote, text, score_cutoff=MIN_SIMILARITY)
    return (
        (alignment.dest_start, alignment.dest_end)
        if alignment and len(quote) <= len(text)
        else None
    )


def _find_nearest(pattern: re.Pattern[str], text: str, near_offset: int) -> tuple[int, int] | None:
    spans = (match.span() for match in pattern.finditer(text))
    return min(spans, key=lambda span: abs(span[0] - near_offset), default=None)


def _find_best_parent(span: tuple[int, int], parents: Sequence[ParentSpan]) -> UUID | None:
    def shared(parent: ParentSpan) -> int:
        return min(parent.char_end, span[1]) - max(parent.char_start, span[0])

    best = max(parents, key=shared, default=None)
    return best.id if best is not None and shared(best) > 0 else None


def build_judgement_export(
    judgements: Iterable[tuple[str, GradedPassage]], difficult: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Group judgements by question.

    `golden` has the format of golden questions. `hard_negatives` are the questions with passages
    that people judged irrelevant although they were found.
    """
    by_query: dict[str, list[GradedPassage]] = defaultdict(list)
    for query, judged in judgements:
        by_query[query].append(judged)
    return {
        "schema_version": 1,
        "golden": [
            {"query": query, "judgements": [_format_judgement(judged) for judged in passages]}
            for query, passages in sorted(by_query.items())
        ],
        "hard_negatives": [
            {
                "query": query,
                "positives": [judged.quote for judged in passages if judged.grade > 0],
                "negatives": [judged.quote for judged in passages if judged.grade == 0],
            }
            for query, passages in sorted(by_query.items())
            if any(judged.grade == 0 for judged in passages)
        ],
        "difficult": [dict(question) for question in difficult],
    }


def _format_judgement(judged: GradedPassage) -> dict[str, Any]:
    return {
        "document_id": str(judged.document_id),
        "external_id": judged.external_id,
        "revision": judged.revision,
        "span": {"char_start": judged.char_start, "char_end": judged.char_end},
        "quote": judged.quote,
        "grade": judged.grade,
    }


def write_judgement_export(folder: Path, export: Mapping[str, Any]) -> dict[str, int]:
    """Write the files, and return their number of lines.

    `qrels.tsv` grades documents by their best passage. Its ids are those of `queries.jsonl`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    queries, qrels = [], []
    for entry in export["golden"]:
        query_id = sha256_hex(entry["query"].encode())[:16]
        queries.append({"id": query_id, "text": entry["query"]})
        grades: dict[str, int] = defaultdict(int)
        for judged in entry["judgements"]:
            name = judged["external_id"] or judged["document_id"]
            grades[name] = max(grades[name], judged["grade"])
        # A tab or a line end in an external id would shift the columns.
        qrels += [(query_id, " ".join(name.split()), grade) for name, grade in grades.items()]
    contents = {
        "golden.jsonl": export["golden"],
        "hard_negatives.jsonl": export["hard_negatives"],
        "difficult.jsonl": export["difficult"],
        "queries.jsonl": queries,
    }
    for name, entries in contents.items():
        lines = "".join(f"{json.dumps(entry, ensure_ascii=False)}\n" for entry in entries)
        (folder / name).write_text(lines, encoding="utf-8")
    rows = "".join(f"{query}\t{document}\t{grade}\n" for query, document, grade in qrels)
    (folder / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}", encoding="utf-8")
    return {name: len(entries) for name, entries in contents.items()} | {"qrels.tsv": len(qrels)}
