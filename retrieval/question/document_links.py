"""Link a question to the documents that it names: by title, a short form of it, or the words that
the text begins with.

A named document is preferred, not required: its passages gain `fusion.named` × weight. The weight
is 1 / n for a name that n documents share. A question that begins with a name as an address
("Supply Agreement (Acme; Bolt): which law governs?") is searched without the address, since its
words say which document is meant and not which passage; the named documents are then searched by
themselves too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from retrieval.question.words import FUNCTION_WORDS, extract_content_words
from schemas.ports.search import ChunkView, NamedDocument

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
