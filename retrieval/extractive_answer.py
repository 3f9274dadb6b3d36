"""The extractive answer: a lead quote with the requested value in bold, and at most two more
quotes.

The lead is the best sentence or table row by `retrieval.evidence`. Unless it holds a value of the
expected type, the sentence that follows it is quoted with it: an answer often stands next to the
sentence that shares the question's words.
"""

from __future__ import annotations

from retrieval.answer_drafts import AnswerDraft, DraftSentence, build_citation
from retrieval.answer_values import (
    choose_cell,
    choose_value,
    detect_answer_type,
    find_value,
    highlight_value,
)
from retrieval.evidence import Evidence, rank_rows
from retrieval.query_plan import QueryPlan
from retrieval.quote_candidates import QuoteCandidate, format_cells, join_next
from retrieval.redaction import Redactor
from schemas.questions import Citation

MODEL = "extractive"
MAX_QUOTES = 3
# Distance in score from the lead up to which a further quote is shown. Measured: at 2 the quotes
# hold 99 % of the answers that they hold without a limit, in two thirds of the words.
MAX_DISTANCE = 2.0
_QUOTED_NOTE = "Quoted from the documents; not written by a language model."


def compose_quoted_answer(
    evidence: Evidence, plan: QueryPlan, redactor: Redactor, *, is_confident: bool
) -> AnswerDraft:
    """Quote the best evidence. Values are marked only in an answer that is likely to be right."""
    # Before texts are cut into cells: the column name may tell what a number is.
    redactor.learn(candidate.readable_text for candidate in evidence.candidates)
    sentences: list[DraftSentence] = []
    citations: list[Citation] = []
    for quote in select_quotes(evidence, plan):
        citation = build_citation(len(citations) + 1, quote)
        if citation is None:
            continue
        text = (
            mark_value(quote, plan.question, redactor)
            if is_confident
            else redactor.mask(quote.readable_text)
        )
        sentences.append(DraftSentence(text, (citation.n,)))
        citations.append(citation)
    return AnswerDraft(
        tuple(sentences),
        tuple(citations),
        MODEL,
        limitations=(_QUOTED_NOTE,),
        closeness=evidence.scores,
        has_engine_failure=evidence.has_engine_failure,
    )


def select_quotes(evidence: Evidence, plan: QueryPlan) -> list[QuoteCandidate]:
    """Return the lead, perhaps joined with the next sentence, then further quotes in context
    order.
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
        if lead_value is None and lead + 1 < len(candidates)
        else None
    )
    # The joined sentence is not quoted twice.
    supporting = [
        row
        for row in others
        if not (joined and row == lead + 1) and scores[row] >= scores[lead] - MAX_DISTANCE
    ][: MAX_QUOTES - 1]
    return [joined or candidates[lead], *(candidates[row] for row in sorted(supporting))]


def mark_value(quote: QuoteCandidate, question: str, redactor: Redactor) -> str:
    """Return the readable text of the quote, with the value that the question asks for in bold.

    The value is chosen in the text as it is stored, and marked in the masked text.
    """
    answer_type = detect_answer_type(question)
    if not quote.is_row:
        text = quote.readable_text
        value_span = choose_value(answer_type, text, question)
        for start, end in redactor.find_ranges(text):
            # A number of a masked identifier stands for all of it.
            if value_span and start < value_span[1] and value_span[0] < end:
                value_span = min(start, value_span[0]), max(end, value_span[1])
        return highlight_value(redactor.mask(text), value_span)
    names, values = quote.header or (), quote.cells
    cell = choose_cell(names, values, question, answer_type)
    marked_values = [
        highlight_value(value, (0, len(value))) if index == cell else value
        for index, value in enumerate(map(redactor.mask, values))
    ]
    return format_cells(names, marked_values)
