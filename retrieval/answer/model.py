"""The written answer: a chat model, structured output, only from the contexts. What it cannot prove is taken out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from retrieval.answer.citations import cite
from retrieval.answer.drafts import Draft, Sentence, without_marks
from retrieval.answer.quotables import Quotable
from retrieval.answer.support import best_support, unsupported_numbers
from retrieval.pack import Context
from retrieval.plan import Plan
from schemas.errors import ModelOutput
from schemas.ports.engines import Chat, ChatReply, Hear
from schemas.questions import Citation

LEAST_SUPPORT = 0.4
"""Share of a sentence's words that the quotes it cites must hold together. Where the passages are in another language, only its numbers can be compared."""
MOST_QUOTES = 2
"""Quotes taken from one cited passage."""


class Written(BaseModel):
    """What the model is asked for."""

    model_config = ConfigDict(extra="forbid")

    class Part(BaseModel):
        model_config = ConfigDict(extra="forbid")
        text: str
        citations: list[int]

    sufficient: bool
    sentences: list[Part]
    assumptions: list[str]
    limitations: list[str]


async def written_answer(contexts: Sequence[Context], items: Sequence[Quotable], plan: Plan, chat: Chat, hear: Hear | None = None) -> Draft:
    """Raises what the chat port raises; ModelOutput for an answer of another shape."""
    reply = await chat.ask(system_prompt(plan.language), user_prompt(contexts, plan.question), answer_schema(), name="answer", hear=hear)
    return _verified(_read(reply), reply, items, plan)


def system_prompt(language: str | None) -> str:
    template = (files("retrieval") / "prompts" / "answer.md").read_text(encoding="utf-8")
    return template.replace("{language}", f" ({language})" if language else "")


def user_prompt(contexts: Sequence[Context], question: str) -> str:
    """One passage a line, `[n] title > section: text`; line breaks inside a passage are closed up so that none can pass for another."""
    lines = [f"[{context.n}] {_heading(context)}{' '.join(context.text.split())}" for context in contexts]
    return "Passages:\n" + "\n".join(lines) + f"\n\nQuestion: {question}"


def _heading(context: Context) -> str:
    parts = [part for part in (context.parent.best.chunk.title, context.view.section) if part]
    return f"{' > '.join(parts)}: " if parts else ""


def answer_schema() -> Mapping[str, Any]:
    """The JSON schema in the strict form: every property required, no others."""
    text_list = {"type": "array", "items": {"type": "string"}}
    sentence = {
        "type": "object",
        "properties": {"text": {"type": "string"}, "citations": {"type": "array", "items": {"type": "integer"}}},
        "required": ["text", "citations"],
        "additionalProperties": False,
    }
    properties = {"sufficient": {"type": "boolean"}, "sentences": {"type": "array", "items": sentence}, "assumptions": text_list, "limitations": text_list}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _read(reply: ChatReply) -> Written:
    try:
        return Written.model_validate(dict(reply.data))
    except ValidationError as error:
        spent = reply.usage.input_tokens + reply.usage.output_tokens
        raise ModelOutput(f"{reply.model} gave an answer of another shape: {error.error_count()} errors", calls=reply.calls, tokens=spent) from error


def _verified(written: Written, reply: ChatReply, items: Sequence[Quotable], plan: Plan) -> Draft:
    """Sentences with at least one verified citation; the others are counted in the limitations."""
    citations: dict[tuple[object, int], Citation] = {}
    kept = []
    for part in written.sentences if written.sufficient else []:
        text = without_marks(part.text)
        if numbers := _cited(text, set(part.citations), items, plan, citations):
            kept.append(Sentence(text, numbers))
    dropped = len(written.sentences) - len(kept) if written.sufficient else 0
    limitations = [*written.limitations, *([f"Sentences without a verified citation were left out: {dropped}."] if dropped else [])]
    return Draft(
        tuple(kept),
        tuple(citations.values()),
        reply.model,
        tuple(written.assumptions),
        tuple(limitations),
        calls=reply.calls,
        tokens=reply.usage.input_tokens + reply.usage.output_tokens,
        reply=reply,
    )


def _cited(text: str, named: set[int], items: Sequence[Quotable], plan: Plan, citations: dict[tuple[object, int], Citation]) -> tuple[int, ...]:
    """Numbers of the citations that prove the sentence (new ones are added), or none. `named` are the contexts that the model names for it."""
    passages = [item for item in items if item.context.n in named]
    if not passages or unsupported_numbers(text, [plan.question, *{item.context.n: item.context.readable for item in passages}.values()]):
        return ()
    proofs, share = best_support(text, passages, MOST_QUOTES)
    if share < LEAST_SUPPORT:
        proofs = [_first_of_best(passages)] if _foreign(passages, plan.language) else []
    return tuple(n for item in proofs if (n := _number(item, citations)) is not None)


def _foreign(passages: Sequence[Quotable], language: str | None) -> bool:
    return language is not None and all(item.chunk.language not in (None, language) for item in passages)


def _first_of_best(passages: Sequence[Quotable]) -> Quotable:
    """Where words cannot choose: the first sentence of the passage's best child."""
    return next((item for item in passages if item.chunk.chunk_id == item.context.parent.best.chunk.chunk_id), passages[0])


def _number(item: Quotable, citations: dict[tuple[object, int], Citation]) -> int | None:
    key = (item.chunk.chunk_id, item.start)
    if key not in citations:
        citation = cite(len(citations) + 1, item)
        if citation is None:
            return None
        citations[key] = citation
    return citations[key].n
