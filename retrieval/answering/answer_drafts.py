"""The draft of an answer: its sentences, their citations and whether sources support them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from retrieval.question.words import extract_word_keys
from retrieval.ranking.graph_facts import GraphLine, PathStep
from retrieval.ranking.quote_candidates import QuoteCandidate
from retrieval.ranking.retrieval_result import clip_spans, format_link, list_pages, parse_spans
from schemas.citations import Citation, GraphFact, RelationHop
from schemas.facts import FactCitation
from schemas.ports.engines import ChatReply
from schemas.questions import Conflict

# Quotes that support one written sentence together.
QUOTES_PER_SENTENCE = 2
REMARK_PREFIX = "Stated by the model: "
FACTS_NOTE = "Marks such as [F1] are stated facts, which no document of the answer confirms."


@dataclass(frozen=True, slots=True)
class DraftSentence:
    """One sentence of an answer, without citation marks, and the numbers of its citations and
    facts.
    """

    text: str
    citations: tuple[int, ...]
    facts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerDraft:
    """An answer before it is judged. No sentences means that the contexts were not sufficient.

    `conflict` holds the values on which its sources disagree, and `search` the words to search for
    when the contexts were not sufficient. `closeness` and `reply` are recorded for reruns.
    `has_engine_failure`: an engine failed to reply, so the answer must not be cached.
    """

    sentences: tuple[DraftSentence, ...]
    citations: tuple[Citation, ...]
    model: str
    assumptions: tuple[str, ...] = ()
    limitations: tuple[str, ...] = ()
    conflict: Conflict | None = None
    relation_path: tuple[RelationHop, ...] = ()
    search: str = ""
    calls: int = 0
    tokens: int = 0
    closeness: tuple[float, ...] | None = None
    reply: ChatReply | None = None
    facts: tuple[FactCitation, ...] = ()
    has_engine_failure: bool = False
    prompt_sha256: str | None = None

    def drop_remarks(self) -> AnswerDraft:
        """Return the draft without what the model says beside the answer, which is not judged."""
        return replace(
            self,
            assumptions=(),
            limitations=tuple(
                text for text in self.limitations if not text.startswith(REMARK_PREFIX)
            ),
        )

    @property
    def text(self) -> str:
        """The sentences, each followed by its citation marks."""
        return " ".join(
            f"{sentence.text} "
            f"{''.join(f'[{n}]' for n in sentence.citations)}"
            f"{''.join(f'[F{n}]' for n in sentence.facts)}"
            for sentence in self.sentences
        )


def strip_citation_marks(text: str) -> str:
    """Remove the model's own `[n]` and `[Fn]` marks: they count contexts, ours count citations."""
    return re.sub(r"(?<!\s)\s*+\[F?\d++(?:\s*+,\s*+F?\d++)*+\]", "", text).strip()


def build_citation(n: int, quote_candidate: QuoteCandidate) -> Citation | None:
    """Build the citation, or return None when the quote differs from the stored text at its
    position.
    """
    chunk, view = quote_candidate.chunk, quote_candidate.context.view
    start, end = chunk.char_start + quote_candidate.start, chunk.char_start + quote_candidate.end
    if not quote_candidate.is_verbatim:
        return None
    spans = clip_spans(parse_spans(chunk), start, end)
    pages = list_pages(spans) or list(view.pages)
    return Citation(
        n=n,
        document_id=chunk.document_id,
        external_id=chunk.external_id,
        revision=chunk.revision,
        chunk_id=chunk.chunk_id,
        title=chunk.title,
        source_uri=chunk.source_uri,
        link=format_link(chunk.document_id, pages, start, end),
        section=quote_candidate.section,
        pages=pages,
        spans=spans,
        quote=quote_candidate.text,
        header=list(quote_candidate.header) if quote_candidate.header else None,
    )


class CitationList:
    """Numbers citations from 1, in the order in which they are made; the same quote only once."""

    def __init__(self) -> None:
        self._by_place: dict[tuple[UUID, int], Citation] = {}

    @property
    def citations(self) -> tuple[Citation, ...]:
        return tuple(self._by_place.values())

    def cite(self, quotes: Iterable[QuoteCandidate]) -> tuple[int, ...]:
        """Return the numbers of the quotes, without those that differ from the stored text."""
        numbers = []
        for quote in quotes:
            place = quote.chunk.chunk_id, quote.start
            citation = self._by_place.get(place) or build_citation(len(self._by_place) + 1, quote)
            if citation is not None:
                self._by_place[place] = citation
                numbers.append(citation.n)
        return tuple(numbers)


def cite_path(path: Sequence[PathStep], citations: CitationList) -> tuple[RelationHop, ...]:
    """Return the steps of a path with their citations; none unless every step is cited."""
    hops = tuple(
        RelationHop(
            subject=step.line.subject,
            predicate=step.line.predicate,
            object=step.line.object,
            inverse=step.inverse,
            citations=list(citations.cite([step.line.quote])),
        )
        for step in path
    )
    return hops if all(hop.citations for hop in hops) else ()


def build_graph_facts(lines: Iterable[GraphLine]) -> list[GraphFact]:
    return [
        GraphFact(
            **citation.model_dump(),
            kind=line.evidence.kind,
            subject=line.subject,
            predicate=line.predicate,
            object=line.object,
            hop=line.evidence.hop,
        )
        for line in lines
        if (citation := build_citation(line.n, line.quote)) is not None
    ]


def add_facts(
    draft: AnswerDraft, sentences: Sequence[DraftSentence], facts: Sequence[FactCitation]
) -> AnswerDraft:
    """Return the draft with these sentences, the facts that they cite, and a note on them."""
    cited = {n for sentence in sentences for n in sentence.facts}
    if not cited:
        return replace(draft, sentences=tuple(sentences))
    return replace(
        draft,
        sentences=tuple(sentences),
        facts=tuple(fact for fact in facts if fact.n in cited),
        limitations=(*draft.limitations, FACTS_NOTE),
    )


_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def compute_support(sentence: str, sources: Sequence[str]) -> float:
    """Return the share of the sentence's topical words that the sources hold.

    1 for a sentence without any.
    """
    sentence_keys = extract_word_keys(sentence)
    source_keys = {key for source in sources for key in extract_word_keys(source)}
    return len(sentence_keys & source_keys) / len(sentence_keys) if sentence_keys else 1.0


def find_unsupported_numbers(sentence: str, sources: Sequence[str]) -> list[str]:
    """Return the numbers that no source contains; thousands separators are ignored."""
    source_numbers = {
        _strip_separators(number) for source in sources for number in _NUMBER.findall(source)
    }
    return [
        number
        for number in _NUMBER.findall(sentence)
        if _strip_separators(number) not in source_numbers
    ]


def _strip_separators(number: str) -> str:
    # 1.234,50 and 1,234.50 are one number in two locales.
    return re.sub(r"[.,]", "", number)


def choose_quotes(
    sentence: str, candidates: Sequence[QuoteCandidate]
) -> tuple[list[QuoteCandidate], float]:
    """Return the quotes that hold most of the sentence, and the share held.

    Takes as few as possible, QUOTES_PER_SENTENCE at most.
    """
    quotes: list[QuoteCandidate] = []
    support = 0.0
    while len(quotes) < QUOTES_PER_SENTENCE:
        texts = [candidate.readable_text for candidate in quotes]
        best = max(
            candidates,
            key=lambda candidate: compute_support(sentence, [*texts, candidate.readable_text]),
            default=None,
        )
        next_support = (
            compute_support(sentence, [*texts, best.readable_text]) if best is not None else 0.0
        )
        # A further quote must add a tenth of the sentence's words.
        if best is None or next_support < support + 0.1:
            break
        quotes.append(best)
        support = next_support
    return quotes, support
