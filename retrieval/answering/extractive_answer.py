"""The extractive answer: a lead quote with the requested value in bold, and at most two more
quotes.

Sentences between which documents disagree come first, each with its value in bold. The lead is the
best sentence or table row by `retrieval.answering.evidence`. Unless it holds a value of the
expected type, the sentence that follows it is quoted with it: an answer often stands next to the
sentence that shares the question's words.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from retrieval.answering.answer_drafts import (
    AnswerDraft,
    CitationList,
    DraftSentence,
    add_facts,
    cite_path,
)
from retrieval.answering.conflicts import cite_conflict, compare_documents
from retrieval.answering.evidence import MAX_QUOTES, QUOTE_DISTANCE, Evidence, rank_rows
from retrieval.answering.row_ranking import EXCLUDED_DISTANCE
from retrieval.prompting import normalize_whitespace
from retrieval.question.answer_values import (
    choose_cell,
    choose_value,
    detect_answer_type,
    find_value,
    highlight_value,
)
from retrieval.question.numerals import find_spelled_numbers
from retrieval.question.query_plan import QueryPlan
from retrieval.ranking.graph_facts import PathStep
from retrieval.ranking.quote_candidates import (
    QuoteCandidate,
    find_equal_quotes,
    format_cells,
    join_next,
    learn_divided_quotes,
    normalize_quote,
)
from retrieval.redaction import Redactor
from schemas.facts import FactCitation
from schemas.planning import Intent

MODEL = "extractive"
_QUOTED_NOTE = "Quoted from the documents; not written by a language model."

# What quotes cannot do for these intents.
_EVIDENCE_ONLY: Mapping[str, Mapping[Intent, str]] = {
    "en": {
        "comparison": "Evidence only: the documents are quoted; nothing was compared.",
        "counting": "Evidence only: the documents are quoted; nothing was counted.",
        "why": "Evidence only: the documents are quoted; no cause was inferred.",
    },
    "pt": {
        "comparison": "Somente evidências: os documentos são citados; nada foi comparado.",
        "counting": "Somente evidências: os documentos são citados; nada foi contado.",
        "why": "Somente evidências: os documentos são citados; nenhuma causa foi deduzida.",
    },
    "es": {
        "comparison": "Solo evidencias: se citan los documentos; no se ha comparado nada.",
        "counting": "Solo evidencias: se citan los documentos; no se ha contado nada.",
        "why": "Solo evidencias: se citan los documentos; no se ha deducido ninguna causa.",
    },
    "fr": {
        "comparison": "Éléments seulement : les documents sont cités ; rien n'a été comparé.",
        "counting": "Éléments seulement : les documents sont cités ; rien n'a été compté.",
        "why": "Éléments seulement : les documents sont cités ; aucune cause n'a été déduite.",
    },
    "de": {
        "comparison": "Nur Belege: Die Dokumente werden zitiert; nichts wurde verglichen.",
        "counting": "Nur Belege: Die Dokumente werden zitiert; nichts wurde gezählt.",
        "why": "Nur Belege: Die Dokumente werden zitiert; keine Ursache wurde erschlossen.",
    },
}


def format_evidence_only(plan: QueryPlan) -> list[str]:
    """Return the limitation of quotes for a question that asks for more than they say, if any."""
    texts = _EVIDENCE_ONLY.get(plan.language or "en", _EVIDENCE_ONLY["en"])
    return [texts[plan.intent]] if plan.intent in texts else []


def compose_quoted_answer(
    evidence: Evidence,
    plan: QueryPlan,
    redactor: Redactor,
    *,
    is_confident: bool,
    facts: Sequence[FactCitation] = (),
    path: Sequence[PathStep] = (),
) -> AnswerDraft:
    """Quote the sentences that state the path, then the best evidence, the sentences between which
    documents disagree first, and then the facts.

    The value that the question asks for is marked only in an answer that is likely to be right.
    """
    # Before texts are cut into cells: the column name may tell what a number is.
    redactor.learn(candidate.readable_text for candidate in evidence.candidates)
    learn_divided_quotes(redactor, evidence.candidates)
    compared = compare_documents(evidence, plan)
    places = compared.places
    citations = CitationList()
    relation_path = cite_path(path, citations)
    # Both steps may stand in one sentence.
    quoted = {normalize_quote(step.line.quote.readable_text): step.line.quote for step in path}
    sentences = [
        DraftSentence(redactor.mask(quote.readable_text), citations.cite([quote]))
        for quote in quoted.values()
        if relation_path
    ]
    columns: dict[tuple[str, ...], int | None] = {}
    for row, quote in select_quotes(evidence, plan, list(places), compared.other_editions):
        is_in_path = sentences and normalize_quote(quote.readable_text) in quoted
        if row not in places and (is_in_path or len(sentences) >= MAX_QUOTES):
            continue
        numbers = citations.cite(find_equal_quotes(quote, evidence.candidates))
        if not numbers:
            continue
        text = redactor.mask(quote.readable_text)
        if row in places:
            text = mark_place(quote.readable_text, places[row], redactor)
        elif is_confident:
            text = mark_value(quote, plan.question, redactor, columns)
        sentences.append(DraftSentence(text, numbers))
    sentences += [
        DraftSentence(redactor.mask(normalize_whitespace(fact.statement)), (), (fact.n,))
        for fact in facts
    ]
    draft = AnswerDraft(
        (),
        citations.citations,
        MODEL,
        limitations=(_QUOTED_NOTE, *format_evidence_only(plan)),
        conflict=cite_conflict(places, evidence, citations, redactor),
        relation_path=relation_path,
        closeness=evidence.scores,
        has_engine_failure=evidence.has_engine_failure,
    )
    return add_facts(draft, sentences, facts)


def select_quotes(
    evidence: Evidence,
    plan: QueryPlan,
    conflicting_rows: Sequence[int] = (),
    omitted_rows: Collection[int] = (),
) -> list[tuple[int, QuoteCandidate]]:
    """Return the quotes with their rows: those that conflict, then the lead, then further quotes in
    context order.

    The lead may be joined with the next sentence. A text is quoted once.
    """
    candidates, scores = evidence.candidates, evidence.get_scores(plan)
    if not candidates:
        return []
    lead, *others = rank_rows(scores)
    lead_value = find_value(
        detect_answer_type(plan.question), candidates[lead].readable_text, plan.question
    )
    joined = (
        join_next(candidates[lead], candidates[lead + 1])
        if lead_value is None
        and lead not in conflicting_rows
        and lead + 1 < len(candidates)
        and scores[lead + 1] > scores[lead] - EXCLUDED_DISTANCE / 2
        else None
    )
    first_rows = [*conflicting_rows, *([] if lead in conflicting_rows else [lead])]
    shown_texts = {normalize_quote(candidates[row].readable_text) for row in first_rows}
    supporting: list[int] = []
    for row in others:
        text = normalize_quote(candidates[row].readable_text)
        # The joined sentence is not quoted twice.
        is_shown = text in shown_texts or (joined is not None and row == lead + 1)
        is_omitted = is_shown or row in omitted_rows
        if is_omitted or scores[row] < scores[lead] - QUOTE_DISTANCE:
            continue
        if len(first_rows) + len(supporting) >= MAX_QUOTES:
            break
        shown_texts.add(text)
        supporting.append(row)
    return [
        (row, joined if joined and row == lead else candidates[row])
        for row in (*first_rows, *sorted(supporting))
    ]


def mark_place(text: str, place: tuple[int, int], redactor: Redactor) -> str:
    """Return the masked text with a place in bold, extended to an identifier that it overlaps."""
    for start, end in redactor.find_ranges(text):
        if start < place[1] and place[0] < end:
            place = min(start, place[0]), max(end, place[1])
    masked = redactor.mask(text)
    return _add_digits(masked, place, highlight_value(masked, place))


def _add_digits(text: str, place: tuple[int, int], marked: str) -> str:
    """Add a number that the marked value says in several words, in digits behind it."""
    spelled = find_spelled_numbers(text[slice(*place)])
    end = place[1] + len(marked) - len(text)
    return f"{marked[:end]} ({spelled[0].value}){marked[end:]}" if spelled else marked


def mark_value(
    quote: QuoteCandidate,
    question: str,
    redactor: Redactor,
    columns: dict[tuple[str, ...], int | None] | None = None,
) -> str:
    """Return the readable text of the quote, with the value that the question asks for in bold.

    The value is chosen in the text as it is stored, and marked in the masked text. `columns` keeps
    the column that the first row of a table chose: the label of that row may be what the question
    says, and those of other rows are not.
    """
    answer_type = detect_answer_type(question)
    if not quote.is_row:
        text = quote.readable_text
        value_span = choose_value(answer_type, text, question)
        return mark_place(text, value_span, redactor) if value_span else redactor.mask(text)
    names, values = quote.header or (), quote.cells
    cell = choose_cell(names, values, question, answer_type)
    if columns is not None and quote.header:
        cell = columns.setdefault(quote.header, cell)
    marked_values = [
        highlight_value(value, (0, len(value))) if index == cell else value
        for index, value in enumerate(map(redactor.mask, values))
    ]
    return format_cells(names, marked_values)
