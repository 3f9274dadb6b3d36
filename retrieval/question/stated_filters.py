"""Find the filters that a question states about documents, and the documents that it names.

"In documents from 2024" and "tagged tax" restrict the search. "In August 2025" alone does not: it
usually dates what the documents report. The words that state a filter are cut from the question.

A document is named by its title, a short form of it, or the words that the text begins with. It is
preferred, not required: its passages gain `fusion.named` × weight. The weight is 1 / n for a name
that n documents share. A question that begins with a name as an address ("Supply Agreement (Acme;
Bolt): which law governs?") is searched without the address, since its words say which document is
meant and not which passage; the named documents are then searched by themselves too.
"""

from __future__ import annotations

import re
import unicodedata
from calendar import monthrange
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from uuid import UUID

from retrieval.question.words import FUNCTION_WORDS, MONTHS, extract_content_words, strip_accents
from schemas.ports.search import ChunkView, NamedDocument
from schemas.questions import Filters

# Longest name to look up, and the words of the question that are searched for names.
MAX_NAME_WORDS, MAX_QUESTION_WORDS = 12, 48
# Documents to read per question. A name that more share says nothing about any.
MAX_NAMED_DOCUMENTS = 500
# Share of the mentions that must be capitalized: in general, and if the question capitalizes too.
MIN_CAPITALIZED, MIN_CAPITALIZED_IF_WRITTEN = 0.8, 0.5
_WORD = re.compile(r"\w+(?:['’]\w+)*")
_DROPPED = re.compile("[\u0300-\u036f'’`´]")
# The same characters as in the SQL function `name_key`.
_SEPARATORS = re.compile(
    "[\u0001-\u002f\u003a-\u0040\u005b-\u0060\u007b-\u00bf\u2000-\u206f\u3000-\u303f]+"
)
_ARTICLE = re.compile("^(?:the|an?) (?=.)")
_POSSESSIVE = re.compile(r"['’]s$", re.IGNORECASE)
# What follows an address: parentheses that describe the document, and a colon or a dash.
_ADDRESS_END = re.compile(r"[\"”»]?,?(?:\s*\((?:[^()]|\([^()]*\))*\))*\s*(?::|\s[-–—]\s)\s*")
_ALL_FUNCTION_WORDS = frozenset().union(*FUNCTION_WORDS.values())


def fold_document_name(name: str) -> str:
    """Remove case, accents, punctuation and a leading English article, as SQL's `name_key` does."""
    plain = _DROPPED.sub("", unicodedata.normalize("NFKD", name)).lower()
    return _ARTICLE.sub("", _SEPARATORS.sub(" ", plain).strip())


def join_name(folded_words: Sequence[str]) -> str:
    """Return the key of a name from the keys of its words, which are cheaper to fold once."""
    has_article = len(folded_words) > 1 and folded_words[0] in ("the", "a", "an")
    return " ".join(folded_words[1:] if has_article else folded_words)


@dataclass(frozen=True, slots=True)
class NameSpan:
    """Words of the question that may be a document's name. `key` is normalized."""

    start: int
    end: int
    key: str
    is_capitalized: bool

    def overlaps(self, other: NameSpan) -> bool:
        return self.start < other.end and other.start < self.end


def find_name_spans(question: str) -> Iterator[NameSpan]:
    """Yield runs of words that may be a name, longest first.

    A function word at either end counts only if it is capitalized within the sentence.
    """
    matches = list(_WORD.finditer(question))[:MAX_QUESTION_WORDS]
    can_bound = [
        match.group().lower() not in _ALL_FUNCTION_WORDS
        or (number > 0 and match.group()[0].isupper())
        for number, match in enumerate(matches)
    ]
    texts = [match.group() for match in matches]
    folded = [fold_document_name(text) for text in texts]
    # "Burka's" may end the name "Burka".
    last_words = [fold_document_name(_POSSESSIVE.sub("", text)) for text in texts]
    ends = [match.start() + len(_POSSESSIVE.sub("", match.group())) for match in matches]
    for length in range(min(MAX_NAME_WORDS, len(matches)), 0, -1):
        for first in range(len(matches) - length + 1):
            last = first + length - 1
            if not (can_bound[first] and can_bound[last]):
                continue
            key = join_name([*folded[first:last], last_words[last]])
            if len(key) > 1:
                start = matches[first].start()
                yield NameSpan(start, ends[last], key, texts[first][0].isupper())


@dataclass(frozen=True, slots=True)
class DocumentLink:
    """A name in the question and the documents that have it."""

    span: NameSpan
    documents: tuple[NamedDocument, ...]
    is_address: bool

    @property
    def weight(self) -> float:
        return 1.0 if self.is_address else 1 / len(self.documents)


def link_documents(
    question: str, spans: Sequence[NameSpan], documents: Iterable[NamedDocument]
) -> tuple[DocumentLink, ...]:
    """Return the links of a question, longest names first, without names inside longer ones."""
    by_key: dict[str, dict[UUID, NamedDocument]] = {}
    for document in documents:
        by_key.setdefault(document.key, {}).setdefault(document.document_id, document)
    links: list[DocumentLink] = []
    for span in spans:
        if span.key in by_key and not any(span.overlaps(link.span) for link in links):
            found = tuple(by_key[span.key].values())
            links.append(DocumentLink(span, found, find_ask(question, span) is not None))
    return tuple(links)


def find_ask(question: str, span: NameSpan) -> str | None:
    """Return the question without the address that `span` begins, or None if it begins none."""
    if question[: span.start].strip(" \"'“«"):
        return None
    end = _ADDRESS_END.match(question, span.end)
    ask = question[end.end() :] if end else ""
    return ask if extract_content_words(ask) else None


def confirm_links(
    links: Iterable[DocumentLink], chunks: Mapping[UUID, ChunkView]
) -> tuple[DocumentLink, ...]:
    """Drop mentions of names that are usually written in lower case in `chunks`.

    Such a title ("Information retrieval") is a topic, which a question mentions without meaning
    the document. Addresses stay.
    """
    return tuple(link for link in links if link.is_address or _is_proper_name(link.span, chunks))


def _is_proper_name(span: NameSpan, chunks: Mapping[UUID, ChunkView]) -> bool:
    # Accents are not folded: the texts are long, and a name is mostly spelled as its title.
    pattern = re.compile(
        r"(?<!\w)" + r"[\W_]+".join(map(re.escape, span.key.split())) + r"(?!\w)", re.IGNORECASE
    )
    mentions = [
        match.group()[0] for view in chunks.values() for match in pattern.finditer(view.text)
    ]
    if not mentions:
        return span.is_capitalized
    share = sum(letter.isupper() or letter.isdigit() for letter in mentions) / len(mentions)
    return share >= (MIN_CAPITALIZED_IF_WRITTEN if span.is_capitalized else MIN_CAPITALIZED)


def weigh_documents(links: Iterable[DocumentLink]) -> dict[UUID, float]:
    """Return the weight of each named document; of several names the best counts."""
    weights: dict[UUID, float] = {}
    for link in links:
        for document in link.documents:
            weights[document.document_id] = max(link.weight, weights.get(document.document_id, 0.0))
    return weights


def format_assumption(link: DocumentLink, question: str) -> str:
    name = question[link.span.start : link.span.end]
    count = len(link.documents)
    documents = "the document" if count == 1 else f"the {count} documents"
    return (
        f"“{name}” names {documents} of that title, which {'is' if count == 1 else 'are'} "
        "preferred. Set prefer_named to false to search all documents alike."
    )


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
    days: dict[str, tuple[date, date]] = {}
    for name, text in match.groupdict().items():
        if text and name != "preposition":
            # No such day, as in 2024-02-30.
            if (bounds := _parse_date(text)) is None:
                return None
            days[name] = bounds
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
