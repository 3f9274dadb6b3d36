"""Find the filters that a question states about documents: their dates and tags.

"In documents from 2024" and "tagged tax" restrict the search. "In August 2025" alone does not: it
usually dates what the documents report. The words that state a filter are cut from the question.
"""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import date, timedelta

from retrieval.question.words import MONTHS, extract_content_words, strip_accents
from schemas.questions import Filters

MAX_TAGS = 8
_MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
_DATE = (
    r"(?:\d{4}-\d\d-\d\d"
    rf"|(?:\d{{1,2}}(?:st|nd|rd|th)? (?:de |of )?)?(?:{_MONTH}),? (?:de |del |of )?(?:19|20)\d\d"
    r"|(?:19|20)\d\d)(?!\w)"
)
_DATE_PARTS = re.compile(
    r"(?P<iso>\d{4}-\d\d-\d\d)"
    r"|(?:(?P<day>\d{1,2})(?:st|nd|rd|th)? (?:de |of )?)?"
    rf"(?:(?P<month>{_MONTH}),? (?:de |del |of )?)?(?P<year>\d{{4}})"
)
# Words for documents in general, with what leads to them, and for kinds of them.
_DOCUMENTS = re.compile(
    r"\b(?:(?:in|from|of|among|em|de|nos|dos|en|dans|aus|in den) )?"
    r"(?:(?:the|all|os|todos os|los|todos los|les|den|allen) )?"
    r"(?:documents?|files|sources|documentos|ficheiros|arquivos|fontes|fichiers|dokumenten?)(?= )"
)
_RECORDS = re.compile(
    r"\b(?:reports|contracts|minutes|letters|invoices|notices|articles|emails|agreements"
    r"|relatorios|contratos|atas|cartas|faturas|artigos|avisos|informes|actas|facturas|rapports"
    r"|contrats|factures|lettres|berichten?|vertragen?|rechnungen|briefen?|protokollen?)(?= )"
)
_WRITTEN = re.compile(
    r" (?:dated|written|published|issued|datad[oa]s|escrit[oa]s|publicad[oa]s|emitid[oa]s"
    r"|fechad[oa]s|datees?|publiees?|datiert)(?: (?:in|on|em|en|vom)(?= ))?"
)
_PERIOD = re.compile(
    rf" (?:between|from|entre|de|zwischen|von) (?P<first>{_DATE}) "
    rf"(?:and|to|until|e|a|y|et|bis|und) (?P<last>{_DATE})"
    rf"|(?: (?:since|desde|depuis|seit)) (?P<since>{_DATE})"
    rf"|(?: (?:after|depois de|apos|despues de|apres|nach)) (?P<after>{_DATE})"
    rf"|(?: (?:before|antes de|avant|vor)) (?P<before>{_DATE})"
    rf"|(?P<preposition> (?:from|of|de|von|aus))? (?P<within>{_DATE})"
)
_TAG = re.compile(
    r"(?<![\w#&/])#(?P<hash>[^\W\d_][\w-]{1,60})"
    r"|\b(?:(?:documents|documentos) )?(?:tagged(?: as)?|with (?:the )?tag|com a (?:tag|etiqueta)"
    r"|con la etiqueta|mit dem tag)"
    r" [\"'“«]?(?P<tag>\w[\w-]{0,60})[\"'”»]?",
    re.I,
)


@dataclass(frozen=True, slots=True)
class StatedFilters:
    """The filters, the words that state them, and the question without these words."""

    filters: Filters
    wordings: tuple[str, ...]
    question: str

    @property
    def quoted_wordings(self) -> str:
        """Empty where a planning model found the filters."""
        return ", ".join(f"“{wording}”" for wording in self.wordings)


def find_stated_filters(question: str, requested: Filters) -> StatedFilters | None:
    """Return the filters that the question states, or None.

    What the request filters by itself is left as it is.
    """
    found: list[tuple[int, int]] = []
    changes: dict[str, object] = {}
    if requested.date_from is None and requested.date_to is None:
        period = _find_period(question)
        if period is not None:
            span, changes["date_from"], changes["date_to"] = period
            found.append(span)
    if not requested.tags:
        matches = list(_TAG.finditer(question))[:MAX_TAGS]
        tags = list(dict.fromkeys(match["hash"] or match["tag"] for match in matches))
        if tags:
            changes["tags"] = tags
            found += [match.span() for match in matches]
    if not found:
        return None
    return StatedFilters(
        requested.model_copy(update=changes),
        tuple(question[start:end].strip() for start, end in sorted(found)),
        _cut(question, found),
    )


def _find_period(question: str) -> tuple[tuple[int, int], date | None, date | None] | None:
    """Return the span of the words, and the first and the last day."""
    folded = strip_accents(question.lower())
    # Positions must fit the question.
    if len(folded) != len(question):
        return None
    for pattern in (_DOCUMENTS, _RECORDS):
        for noun in pattern.finditer(folded):
            written = _WRITTEN.match(folded, noun.end())
            start = written.end() if written else noun.end()
            match = _PERIOD.match(folded, start)
            if match is None:
                continue
            # The reports of 2025 may be dated 2026, and files in 2025 may be what a text is about.
            is_dated = written or (pattern is _DOCUMENTS and match["preposition"])
            if match["within"] and not is_dated:
                continue
            days = _resolve_period(match)
            if days is not None:
                # "Documents" says nothing about the topic; "reports" may.
                cut_from = noun.start() if pattern is _DOCUMENTS else noun.end()
                return (cut_from, match.end()), *days
    return None


def _resolve_period(match: re.Match[str]) -> tuple[date | None, date | None] | None:
    bounds = {
        name: _parse_date(text)
        for name, text in match.groupdict().items()
        if text and name != "preposition"
    }
    # No such day, as in 2024-02-30.
    if None in bounds.values():
        return None
    days = {name: bound for name, bound in bounds.items() if bound is not None}
    if "first" in days:
        return days["first"][0], days["last"][1]
    if "since" in days:
        return days["since"][0], None
    if "after" in days:
        return days["after"][1] + timedelta(days=1), None
    if "before" in days:
        return None, days["before"][0] - timedelta(days=1)
    return days["within"]


def _parse_date(text: str) -> tuple[date, date] | None:
    """Return the first and the last day of a day, month or year; None for a day that is none."""
    parts = _DATE_PARTS.match(text)
    assert parts is not None
    try:
        if parts["iso"]:
            day = date.fromisoformat(parts["iso"])
            return day, day
        year = int(parts["year"])
        if not parts["month"]:
            return date(year, 1, 1), date(year, 12, 31)
        month = MONTHS[parts["month"]]
        if parts["day"]:
            day = date(year, month, int(parts["day"]))
            return day, day
        return date(year, month, 1), date(year, month, monthrange(year, month)[1])
    except ValueError:
        return None


def _cut(question: str, spans: list[tuple[int, int]]) -> str:
    """Return the question without the spans; all of it when no topic is left."""
    rest = question
    for start, end in sorted(spans, reverse=True):
        rest = f"{rest[:start].rstrip()} {rest[end:].lstrip(' ,')}".strip()
    return rest if extract_content_words(rest) else question


def format_filter_assumption(stated: StatedFilters) -> str:
    return f"{_format_restriction(stated)}. Set infer_filters to false to search all documents."


def format_dropped_filter(stated: StatedFilters) -> str:
    return (
        f"{_format_restriction(stated)}, which hold no answer. All documents were searched instead."
    )


def _format_restriction(stated: StatedFilters) -> str:
    conditions = [
        *(f"tag {tag}" for tag in stated.filters.tags),
        *([f"from {stated.filters.date_from}"] if stated.filters.date_from else []),
        *([f"to {stated.filters.date_to}"] if stated.filters.date_to else []),
    ]
    subject = stated.quoted_wordings or "The planning model"
    return f"{subject} restricts the search to documents with {', '.join(conditions)}"
