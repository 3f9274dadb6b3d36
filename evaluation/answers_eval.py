"""Evaluate answers against gold texts: right, half, wrong, refused, marked and confident.

A set is a folder with `manifest.jsonl` ({file, external_id}), the files, and `questions.jsonl`
({id, question, kind, language, answerable, documents, gold or all_of, must_not, expected, mode,
spans}).
"""

from __future__ import annotations

import json
import random
import re
import unicodedata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from evaluation.metrics import SCHEMA_VERSION
from evaluation.set_files import make_set_error, read_lines
from retrieval.answering.extractive_answer import MODEL as QUOTING_MODEL
from retrieval.question.words import is_unspaced
from schemas.questions import Confidence, QueryResponse, RouteMode

N_BOOTSTRAP_ROUNDS = 1000
BOOTSTRAP_SEED = 7

Outcome = Literal["right", "half", "wrong", "falsely_refused", "correctly_refused", "answered"]


class GoldSpan(BaseModel):
    """Text of a document that an answer should cite."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    document: str
    quote: str


class AnswerQuestion(BaseModel):
    """A question. One alternative of each group of `all_of`, or of `gold`, must be shown.

    `must_not` lists what makes an answer wrong when its lead shows it; `expected` is `yes` or `no`.
    `mode` is the route that suits the question, and `spans` are what an answer should cite.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    question: str
    kind: str
    language: str
    answerable: bool
    documents: list[str] = []
    gold: list[str] = []
    all_of: list[list[str]] = []
    must_not: list[str] = []
    expected: Literal["yes", "no"] | None = None
    mode: RouteMode | None = None
    spans: list[GoldSpan] = []

    @property
    def groups(self) -> list[list[str]]:
        return self.all_of or ([self.gold] if self.gold else [])


@dataclass(frozen=True, slots=True)
class SetFile:
    path: Path
    external_id: str


_REMEDY = (
    "Add manifest.jsonl with {file, external_id} and questions.jsonl with {id, question, kind, "
    "language, answerable, documents, gold or all_of} per line."
)


def read_answers_set(folder: Path) -> tuple[list[SetFile], list[AnswerQuestion]]:
    """Read the set. Raises InvalidRequest if the folder is invalid."""

    def parse_file(entry: dict[str, str]) -> SetFile:
        name = entry["file"]
        return SetFile(folder / name, entry.get("external_id") or Path(name).name)

    files = read_lines(folder / "manifest.jsonl", parse_file, _REMEDY)
    path = folder / "questions.jsonl"
    questions = read_lines(path, AnswerQuestion.model_validate, _REMEDY)
    missing_gold = [item.id for item in questions if item.answerable and not item.groups]
    if missing_gold:
        raise make_set_error(
            f"Answerable questions without gold: {', '.join(missing_gold[:5])}.", _REMEDY
        )
    return files, questions


_DASHES = {ord(char): "-" for char in "‐‑‒–—−"}
_QUOTE_MARKS = {ord(char): "'" for char in "’‘"} | {ord(char): '"' for char in "“”«»"}
_GROUPED_NUMBER = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:[ ,.']\d{3})+(?!\d|[.,]\d{3})")


def normalize_text(text: str) -> str:
    """Return the text as answers are compared.

    Lower case, without accents, markup, thousands separators and zeros that end decimals.
    """
    text = unicodedata.normalize("NFKC", text).translate(_DASHES).translate(_QUOTE_MARKS).lower()
    text = "".join(
        char for char in unicodedata.normalize("NFD", text) if not unicodedata.combining(char)
    )
    text = re.sub(r"[*_`]+", "", text)
    text = " ".join(text.split())
    text = " ".join(re.sub(r" ?[|;]+ ?", " · ", text).split())
    text = _GROUPED_NUMBER.sub(lambda match: re.sub(r"\D", "", match.group()), text)
    text = re.sub(r"(?<=\d)([.,]\d)0(?!\d)", r"\1", text)
    text = re.sub(r"(?<=\d)[.,]0(?!\d)", "", text)
    text = re.sub(r"(\d) (?=[%°€$])", r"\1", text)
    return re.sub(r"° c\b", "°c", text)


def contains(normalized_text: str, wanted: str) -> bool:
    """Tell whether the wanted text stands in the other as whole words and whole numbers."""
    pattern = re.escape(wanted := normalize_text(wanted))
    if not wanted:
        return False
    # Scripts without spaces have no whole words to see.
    if is_unspaced(wanted):
        return wanted in normalized_text
    if re.match(r"\w", wanted):
        pattern = rf"(?<!\w)(?<!\d[.,]){pattern}"
    if re.search(r"\w$", wanted):
        pattern = rf"{pattern}(?!\w)(?![.,]\d)"
    return re.search(pattern, normalized_text) is not None


_SENTENCE_BREAK = re.compile(r'(?<=[a-zà-ÿ)\]"”%°€*0-9][.!?])\s+(?=[A-ZÀ-Þ¿¡"“*])')
_ABBREVIATION = re.compile(r"\b(?:Dr|Mr|Mrs|Ms|St|No|Nos|Nr|Sr|Sra|Art|art|cl|approx|ca)\.$")


def extract_lead(answer: str) -> str:
    """Return the first sentence or row of an answer: up to a citation mark, line or sentence
    end.
    """
    first_part = re.split(r"\[\d+\]|\n", answer.strip(), maxsplit=1)[0]
    lead = ""
    for piece in _SENTENCE_BREAK.split(first_part):
        lead = f"{lead} {piece}".strip()
        if not _ABBREVIATION.search(piece):
            break
    return lead


def extract_marks(answer: str) -> list[str]:
    """Return the normalized texts in bold."""
    return [normalize_text(mark) for mark in re.findall(r"\*\*(.+?)\*\*", answer)]


_YES_NO = {
    "en": ("yes", "no"),
    "pt": ("sim", "nao"),
    "de": ("ja", "nein"),
    "fr": ("oui", "non"),
    "es": ("si", "no"),
}
_LEVELS = ("low", "medium", "high")
_FAITHFULNESS_CHECKS = ("groundedness", "hallucination", "contradiction")


@dataclass(frozen=True, slots=True)
class ScoredAnswer:
    """The outcome of a question, with what the shares are made of.

    `is_marked_right` is None without a mark, `is_routed_right` without an expected mode, and
    `is_faithful` where no chat model wrote. The other measures are False for a refusal.
    `spans_cited` is the share of the expected spans.
    """

    question: AnswerQuestion
    outcome: Outcome
    confidence: Confidence
    lead_right: bool = False
    document_cited: bool = False
    all_documents_cited: bool = False
    first_citation_right: bool = False
    quote_has_gold: bool = False
    lead_quote_has_gold: bool = False
    citation_precision: float = 0.0
    is_marked_right: bool | None = None
    is_routed_right: bool | None = None
    is_faithful: bool | None = None
    spans_cited: float = 0.0


def score_answer(question: AnswerQuestion, response: QueryResponse) -> ScoredAnswer:
    confidence, answer = response.confidence, response.answer or ""
    is_refused = response.refused or not answer.strip()
    route = response.trace.route
    routed = (
        None if question.mode is None else (route.escalated_from or route.mode) == question.mode
    )
    faithful = _is_faithful(response)
    if is_refused or not question.answerable:
        outcome: Outcome = (
            "answered"
            if not is_refused
            else "falsely_refused"
            if question.answerable
            else "correctly_refused"
        )
        return ScoredAnswer(
            question, outcome, confidence, is_routed_right=routed, is_faithful=faithful
        )
    quotes = [citation.quote for citation in response.citations]
    all_quotes = normalize_text(" \n ".join(quotes))
    lead = normalize_text(extract_lead(answer))
    share = _measure_gold(question, f"{normalize_text(answer)} \n {all_quotes}")
    lead_share = _measure_gold(question, lead)
    outcome = "wrong" if share == 0 or _is_offending(question, answer, lead) else "half"
    if outcome == "half" and share == 1:
        outcome = "right"
    cited = [citation.external_id for citation in response.citations]
    marks = extract_marks(answer)
    return ScoredAnswer(
        question,
        outcome,
        confidence,
        lead_right=outcome == "right" and lead_share > 0,
        document_cited=any(document in cited for document in question.documents),
        all_documents_cited=all(document in cited for document in question.documents),
        first_citation_right=bool(cited) and cited[0] in question.documents,
        quote_has_gold=_measure_gold(question, all_quotes) == 1,
        lead_quote_has_gold=bool(quotes) and _measure_gold(question, normalize_text(quotes[0])) > 0,
        citation_precision=fmean(document in question.documents for document in cited)
        if cited
        else 0.0,
        is_marked_right=any(map(question_matcher(question), marks)) if marks else None,
        is_routed_right=routed,
        is_faithful=faithful,
        spans_cited=_measure_spans(question, response),
    )


def _is_faithful(response: QueryResponse) -> bool | None:
    """Tell whether a written answer, also a blocked one, passed the checks against its citations.

    None if it was not written by a chat model, or none of these checks was made.
    """
    if response.judge is None or response.trace.models.get("answer") in (None, QUOTING_MODEL):
        return None
    results = [
        check.result
        for check in response.judge.checks
        if check.name in _FAITHFULNESS_CHECKS and check.result != "not_checked"
    ]
    return "fail" not in results if results else None


def _measure_spans(question: AnswerQuestion, response: QueryResponse) -> float:
    """Return the share of the expected spans that a quote of their document holds or lies in."""
    return (
        fmean(
            any(
                citation.external_id == span.document
                and (contains(quote, span.quote) or contains(normalize_text(span.quote), quote))
                for citation in response.citations
                if (quote := normalize_text(citation.quote))
            )
            for span in question.spans
        )
        if question.spans
        else 0.0
    )


def question_matcher(question: AnswerQuestion) -> Callable[[str], bool]:
    """Return a test whether a mark is the gold, a part of it, or holds it."""
    golds = [gold for group in question.groups for gold in group]
    return lambda mark: any(
        contains(mark, gold) or contains(normalize_text(gold), mark) for gold in golds
    )


def _measure_gold(question: AnswerQuestion, normalized_text: str) -> float:
    """Return the share of the question's groups of which the text holds an alternative."""
    return fmean(
        any(contains(normalized_text, gold) for gold in group) for group in question.groups
    )


def _is_offending(question: AnswerQuestion, answer: str, lead: str) -> bool:
    """Tell whether the lead shows or marks what it must not, or says the contrary."""
    offending = [text for text in question.must_not if contains(lead, text)]
    if offending and _measure_gold(question, lead) == 0:
        return True
    marks = extract_marks(extract_lead(answer))
    if (
        offending
        and marks
        and not any(map(question_matcher(question), marks))
        and any(contains(mark, text) for mark in marks for text in offending)
    ):
        return True
    first_word = re.match(r"[a-z]+", lead)
    yes, no = _YES_NO.get(question.language, _YES_NO["en"])
    contrary = {"yes": no, "no": yes}.get(question.expected or "")
    return first_word is not None and first_word.group() == contrary


_OUTCOMES: Sequence[Outcome] = ("right", "half", "wrong", "falsely_refused")
_SHARES_OF_GIVEN = (
    "document_cited",
    "all_documents_cited",
    "first_citation_right",
    "quote_has_gold",
    "lead_quote_has_gold",
)


def compute_measures(scored: Sequence[ScoredAnswer]) -> dict[str, float | None]:
    """Return shares of the answerable, of the unanswerable and of the answers given.

    `confidence_auc` is the probability that a right answer has a higher score than another; `all`
    includes answers to unanswerable questions.
    """
    answerable = [item for item in scored if item.question.answerable]
    unanswerable = [item for item in scored if not item.question.answerable]
    given = [item for item in answerable if item.outcome != "falsely_refused"]
    measures: dict[str, float | None] = {}
    if answerable:
        for outcome in _OUTCOMES:
            measures[outcome] = fmean(item.outcome == outcome for item in answerable)
        measures["lead_right"] = fmean(item.lead_right for item in answerable)
        for name in _SHARES_OF_GIVEN:
            measures[name] = _mean_or_none([getattr(item, name) for item in given])
        measures["marked_right"] = _mean_or_none([item.is_marked_right for item in given])
        measures["citation_precision"] = _mean_or_none([item.citation_precision for item in given])
        measures["spans_cited"] = _mean_or_none(
            [item.spans_cited for item in answerable if item.question.spans]
        )
    if unanswerable:
        refused = fmean(item.outcome == "correctly_refused" for item in unanswerable)
        measures |= {"correctly_refused": refused, "answered": 1 - refused}
    if answerable and unanswerable:
        measures["refusal_precision"] = _mean_or_none(
            [
                item.outcome == "correctly_refused"
                for item in scored
                if item.outcome.endswith("refused")
            ]
        )
        measures["balanced"] = ((measures["right"] or 0.0) + refused) / 2
    measures["routing_accuracy"] = _mean_or_none([item.is_routed_right for item in scored])
    measures["faithfulness"] = _mean_or_none([item.is_faithful for item in scored])
    measures["confidence_auc_answerable"] = compute_confidence_auc(answerable)
    measures["confidence_auc_all"] = compute_confidence_auc(scored)
    return measures


def _mean_or_none(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def compute_confidence_auc(scored: Sequence[ScoredAnswer]) -> float | None:
    right = [item.confidence.score for item in scored if item.outcome == "right"]
    others = [
        item.confidence.score for item in scored if item.outcome in ("wrong", "half", "answered")
    ]
    return _mean_or_none([(high > low) + 0.5 * (high == low) for high in right for low in others])


def summarize(scored: Sequence[ScoredAnswer]) -> dict[str, Any]:
    """Return each measure with its 95 % bootstrap interval over questions.

    Answerable and unanswerable questions are drawn apart.
    """
    generator = random.Random(BOOTSTRAP_SEED)
    strata = [
        stratum
        for is_answerable in (True, False)
        if (stratum := [item for item in scored if item.question.answerable == is_answerable])
    ]
    samples: dict[str, list[float]] = {}
    for _ in range(N_BOOTSTRAP_ROUNDS):
        drawn = [item for stratum in strata for item in generator.choices(stratum, k=len(stratum))]
        for name, value in compute_measures(drawn).items():
            if value is not None:
                samples.setdefault(name, []).append(value)
    summary: dict[str, Any] = {"n": len(scored)}
    for name, value in compute_measures(scored).items():
        if value is not None:
            drawn_values = sorted(samples.get(name, [value]))
            summary[name] = {
                "value": round(value, 4),
                "low": round(drawn_values[int(0.025 * len(drawn_values))], 4),
                "high": round(drawn_values[int(0.975 * len(drawn_values))], 4),
            }
    return summary


def build_answers_report(
    scored: Sequence[ScoredAnswer], latencies_ms: Sequence[float]
) -> dict[str, Any]:
    report: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "questions": len(scored),
        "overall": summarize(scored),
    }
    groups: Mapping[str, Callable[[AnswerQuestion], str]] = {
        "kinds": lambda question: question.kind,
        "languages": lambda question: question.language,
    }
    for name, get_group in groups.items():
        values = dict.fromkeys(get_group(item.question) for item in scored)
        report[name] = {
            value: summarize([item for item in scored if get_group(item.question) == value])
            for value in values
        }
    given = [item for item in scored if not item.outcome.endswith("refused")]
    report["right_by_confidence"] = {
        level: {
            "answers": len(answers),
            "right": round(fmean(item.outcome == "right" for item in answers), 4),
        }
        for level in _LEVELS
        if (answers := [item for item in given if item.confidence.level == level])
    }
    ordered = sorted(latencies_ms)
    report["latency_ms"] = {
        "p50": round(ordered[len(ordered) // 2], 1),
        "p95": round(ordered[int(len(ordered) * 0.95)], 1),
    }
    return report


Ask = Callable[[str], Awaitable[QueryResponse]]
"""Answers a question."""


async def evaluate_answers(
    questions: Sequence[AnswerQuestion], ask: Ask
) -> tuple[dict[str, Any], list[tuple[AnswerQuestion, QueryResponse]]]:
    """Ask every question; return the report and the responses. Latencies are those of the trace."""
    responses = [(question, await ask(question.question)) for question in questions]
    scored = [score_answer(question, response) for question, response in responses]
    latencies = [
        response.trace.timings_ms.get("total", 0.0)
        for _, response in responses
        if not response.refused
    ]
    return build_answers_report(scored, latencies or [0.0]), responses


def format_measures(overall: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return a row (name, value, interval) for each measure."""
    return [
        (name, f"{figure['value']:.3f}", f"{figure['low']:.3f} to {figure['high']:.3f}")
        for name, figure in overall.items()
        if isinstance(figure, dict)
    ]


def write_responses(path: Path, responses: Sequence[tuple[AnswerQuestion, QueryResponse]]) -> None:
    """Write a JSON line for each question: its id, answer, citations, confidence and route."""
    fields = {"answer", "refused", "code", "message", "citations", "confidence"}
    with path.open("w", encoding="utf-8") as file:
        for question, response in responses:
            body = response.model_dump(mode="json", include=fields)
            line = {
                "id": question.id,
                **body,
                "route": response.trace.route.model_dump(),
                "ms": response.trace.timings_ms.get("total"),
            }
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
