"""Let the chat model write the draft, and extract its words while the JSON is streamed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from retrieval.answering.answer_drafts import (
    REMARK_PREFIX,
    AnswerDraft,
    CitationList,
    DraftSentence,
    add_facts,
    choose_quotes,
    cite_path,
    compute_support,
    find_unsupported_numbers,
    strip_citation_marks,
)
from retrieval.answering.conflicts import cite_conflict, compare_documents
from retrieval.answering.evidence import Evidence
from retrieval.prompting import Prompt, build_object_schema, normalize_whitespace
from retrieval.question.query_plan import QueryPlan
from retrieval.ranking.query_context import QueryContext
from retrieval.ranking.quote_candidates import QuoteCandidate, learn_divided_quotes
from retrieval.ranking.retrieval_result import RetrievalResult, find_relation_path
from retrieval.redaction import MASK, Redactor
from schemas.answer_profiles import AnswerProfile
from schemas.errors import InvalidModelOutput
from schemas.facts import FactCitation
from schemas.judge_verdicts import Violation
from schemas.ports.engines import ChatModel, ChatReply, OnDelta
from schemas.questions import AnswerDelta, OnProgress

# A sentence so far. Quotes inside a JSON string are escaped, so only the key itself matches.
_TEXT = re.compile(r'"text"\s*:\s*"((?:[^"\\]|\\.)*)')
_COMPLETE_TEXT = re.compile(rf'{_TEXT.pattern}"')
# Ends before an incomplete escape or half a surrogate pair.
_COMPLETE_ESCAPES = re.compile(
    r"(?:[^\\]|\\[^u]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)*"
)
_OPEN_MARK = re.compile(r"\s*\[[^\]]*$|\s+$")
MAX_OPEN_SENTENCE = 16_384
"""Characters without the end of a sentence after which a draft is streamed no further."""


class PartialAnswer:
    """Collect pieces of JSON as the chat port streams them, and report new words.

    A draft's text only grows. Identifiers are masked, and a sentence is then reported when it is
    complete: its beginning may be a piece of one.
    """

    def __init__(self, on_progress: OnProgress, redactor: Redactor) -> None:
        self._on_progress, self._redactor = on_progress, redactor
        self._draft, self._complete, self._rest, self._published_length = 0, "", "", 0
        self._earlier_drafts = 0

    def start_attempt(self) -> None:
        """Number the drafts of the next attempt after those of earlier ones."""
        self._earlier_drafts = self._draft

    def feed(self, draft: int, piece: str, /) -> None:
        draft += self._earlier_drafts
        # The model started its reply again, and the client discards what it has shown.
        if draft != self._draft:
            self._draft, self._complete, self._rest, self._published_length = draft, "", "", 0
        if len(self._rest) > MAX_OPEN_SENTENCE:
            return
        self._rest += piece
        # Complete sentences are read once: an answer comes in thousands of pieces.
        if matches := list(_COMPLETE_TEXT.finditer(self._rest)):
            end = matches[-1].end()
            self._complete += " " + parse_partial_text(self._rest[:end])
            self._rest = self._rest[end:]
        open_text = "" if self._redactor.is_active else parse_partial_text(self._rest)
        text = self._redactor.mask(f"{self._complete} {open_text}".strip())
        if len(text) > self._published_length:
            self._on_progress(AnswerDelta(draft=draft, text=text[self._published_length :]))
            self._published_length = len(text)


def parse_partial_text(answer: str) -> str:
    """Return the sentences of an unfinished answer.

    Citation marks are left out, also those that may only be beginning.
    """
    sentences = [_decode_partial(match.group(1)) for match in _TEXT.finditer(answer)]
    if sentences:
        sentences[-1] = _OPEN_MARK.sub("", sentences[-1])
    return " ".join(filter(None, map(strip_citation_marks, sentences)))


def _decode_partial(raw: str) -> str:
    complete = _COMPLETE_ESCAPES.match(raw)
    # strict=False: models send raw control characters inside strings.
    return str(json.loads(f'"{complete.group() if complete else ""}"', strict=False)).replace(
        "\0", ""
    )


# Documents and models provide these texts, of any length.
MAX_TITLE, MAX_SECTION = 200, 400
MAX_REMARKS, MAX_REMARK = 5, 300
MAX_SEARCH = 300


class ModelAnswer(BaseModel):
    """The structured output that the model must return."""

    model_config = ConfigDict(extra="forbid")

    class CitedSentence(BaseModel):
        model_config = ConfigDict(extra="forbid")
        text: str
        citations: list[int]
        facts: list[int] = []

    sufficient: bool
    sentences: list[CitedSentence]
    assumptions: list[str]
    limitations: list[str]
    search: str = ""


async def generate_answer(
    query: QueryContext,
    result: RetrievalResult,
    evidence: Evidence,
    chat: ChatModel,
    prompt: Prompt,
    on_delta: OnDelta | None = None,
    violations: Sequence[Violation] = (),
    *,
    may_search: bool = False,
) -> AnswerDraft:
    """Ask the chat model for an answer, and keep its verified sentences.

    `violations` are the reasons for which an earlier answer was rejected. With `may_search`, the
    reply may name words to search for.
    Raises what the chat port raises, and InvalidModelOutput for a reply of another shape.
    """
    learn_divided_quotes(query.redactor, evidence.candidates)
    reply = await chat.complete(
        prompt.system,
        build_user_prompt(query, result, violations),
        build_answer_schema(may_search=may_search, has_facts=bool(result.facts)),
        name="answer",
        on_delta=on_delta,
        options=prompt.options,
    )
    try:
        model_answer = ModelAnswer.model_validate(dict(reply.data))
    except ValidationError as error:
        # A reply that cannot be used was paid for: the fallback answer reports its cost.
        tokens = reply.usage.input_tokens + reply.usage.output_tokens
        raise InvalidModelOutput(
            f"Reply of {reply.model} does not match the answer schema: {error.error_count()} "
            "errors.",
            calls=reply.calls,
            tokens=tokens,
        ) from error
    return _verify_answer(query, result, evidence, model_answer, reply)


def build_user_prompt(
    query: QueryContext, result: RetrievalResult, violations: Sequence[Violation]
) -> str:
    """Write one JSON object with one passage per line. The model sees no masked identifier.

    JSON escaping keeps any title, section or text from passing for another passage or for the
    query.
    """
    redactor = query.redactor
    passages = [
        {
            "n": context.n,
            "title": normalize_whitespace(
                redactor.mask(context.parent.best.chunk.title or ""), MAX_TITLE
            ),
            "section": normalize_whitespace(redactor.mask(context.view.section or ""), MAX_SECTION),
            "text": normalize_whitespace(redactor.mask(context.text)),
        }
        for context in result.contexts
    ]
    lines = ",\n".join(json.dumps(passage, ensure_ascii=False) for passage in passages)
    rest: dict[str, Any] = {}
    if result.facts:
        rest["facts"] = [
            {
                "f": fact.n,
                "statement": normalize_whitespace(redactor.mask(fact.statement)),
                "stated_on": fact.stated_at.date().isoformat(),
                "certainty": round(fact.certainty, 2),
            }
            for fact in result.facts
        ]
    for name, kind in (("graph_facts", "relation"), ("claims", "claim")):
        lines_of_kind = (line for line in result.graph_lines if line.evidence.kind == kind)
        if kept := [line.to_prompt(redactor) for line in lines_of_kind]:
            rest[name] = kept
    rest |= {"question": normalize_whitespace(redactor.mask(query.plan.question))}
    if violations:
        rest["rejected"] = [
            normalize_whitespace(redactor.mask(f"{item.check}: {item.evidence}"))
            for item in violations
        ]
    return f'{{"passages": [\n{lines}\n],\n{json.dumps(rest, ensure_ascii=False)[1:]}'


def build_answer_schema(*, may_search: bool = False, has_facts: bool = False) -> Mapping[str, Any]:
    text_list = {"type": "array", "items": {"type": "string"}}
    number_list = {"type": "array", "items": {"type": "integer"}}
    sentence = build_object_schema(
        {
            "text": {"type": "string"},
            "citations": number_list,
            **({"facts": number_list} if has_facts else {}),
        }
    )
    return build_object_schema(
        {
            "sufficient": {"type": "boolean"},
            "sentences": {"type": "array", "items": sentence},
            "assumptions": text_list,
            "limitations": text_list,
            **({"search": {"type": "string"}} if may_search else {}),
        }
    )


def _verify_answer(
    query: QueryContext,
    result: RetrievalResult,
    evidence: Evidence,
    model_answer: ModelAnswer,
    reply: ChatReply,
) -> AnswerDraft:
    """Keep sentences with a verified citation or fact; the limitations count the others."""
    plan, profile, facts = query.plan, query.profile.answer, result.facts
    citations = CitationList()
    # Of a line of the graph only its quote supports a sentence, not the extractor's label.
    candidates = [*evidence.candidates, *(line.quote for line in result.graph_lines)]
    cited_sentences = []
    for sentence in model_answer.sentences if model_answer.sufficient else []:
        text = strip_citation_marks(sentence.text)
        numbers = _cite_sentence(
            text, set(sentence.citations), candidates, plan, citations, profile
        )
        fact_numbers = _find_supporting_facts(
            text, sentence.facts, facts, plan, profile.min_support
        )
        if numbers or fact_numbers:
            cited_sentences.append(DraftSentence(text, numbers, fact_numbers))
    n_dropped = len(model_answer.sentences) - len(cited_sentences) if model_answer.sufficient else 0
    limitations = list(_format_remarks(model_answer.limitations))
    if n_dropped:
        limitations.append(f"Sentences removed for lack of a verified citation: {n_dropped}.")
    # The model may have chosen one of the values: both sources are cited all the same.
    cited_conflict = (
        cite_conflict(
            compare_documents(evidence, plan).places,
            evidence,
            citations,
            query.redactor,
        )
        if cited_sentences
        else None
    )
    path = find_relation_path(plan, result) if cited_sentences else ()
    search = "" if model_answer.sufficient else model_answer.search
    draft = AnswerDraft(
        (),
        citations.citations,
        reply.model,
        _format_remarks(model_answer.assumptions),
        tuple(limitations),
        conflict=cited_conflict,
        relation_path=cite_path(path, citations),
        # A masked identifier cannot be searched for.
        search="" if MASK in search else normalize_whitespace(search, MAX_SEARCH),
        closeness=evidence.scores,
        calls=reply.calls,
        tokens=reply.usage.input_tokens + reply.usage.output_tokens,
        reply=reply,
    )
    return add_facts(draft, cited_sentences, facts)


def _find_supporting_facts(
    text: str,
    named: Sequence[int],
    facts: Sequence[FactCitation],
    plan: QueryPlan,
    min_support: float,
) -> tuple[int, ...]:
    """Return the named facts that hold the words and numbers of the sentence; empty if they do
    not.
    """
    numbers = tuple(fact.n for fact in facts if fact.n in named)
    statements = [fact.statement for fact in facts if fact.n in named]
    if (
        not statements
        or find_unsupported_numbers(text, [plan.question, *statements])
        or compute_support(text, statements) < min_support
    ):
        return ()
    return numbers


def _format_remarks(remarks: Sequence[str]) -> tuple[str, ...]:
    """Shorten the model's remarks and attribute them to the model: nothing verifies them."""
    normalized = [normalize_whitespace(remark, MAX_REMARK) for remark in remarks[:MAX_REMARKS]]
    return tuple(f"{REMARK_PREFIX}{remark}" for remark in normalized if remark)


def _cite_sentence(
    text: str,
    context_numbers: set[int],
    candidates: Sequence[QuoteCandidate],
    plan: QueryPlan,
    citations: CitationList,
    profile: AnswerProfile,
) -> tuple[int, ...]:
    """Return the numbers of the citations that support the sentence, adding new ones; empty if
    unsupported.

    `context_numbers` are the contexts that the model cites for it.
    """
    named_candidates = [item for item in candidates if item.context.n in context_numbers]
    # A number that neither its passages nor the question hold is taken as invented.
    if not named_candidates or find_unsupported_numbers(
        text,
        [
            plan.question,
            *{item.context.n: item.context.readable_text for item in named_candidates}.values(),
        ],
    ):
        return ()
    quotes, support = choose_quotes(text, named_candidates)
    if support < profile.min_support:
        # Words of another language cannot be compared; its numbers were compared above.
        is_foreign = plan.language is not None and all(
            item.chunk.language not in (None, plan.language) for item in named_candidates
        )
        quotes = [_pick_first_of_best(named_candidates)] if is_foreign else []
    return citations.cite(quotes)


def _pick_first_of_best(passages: Sequence[QuoteCandidate]) -> QuoteCandidate:
    """Return the first sentence of the passage's best child, where words cannot choose."""
    return next(
        (
            item
            for item in passages
            if item.chunk.chunk_id == item.context.parent.best.chunk.chunk_id
        ),
        passages[0],
    )
