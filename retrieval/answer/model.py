"""The written answer: a chat model, structured output, only from the contexts. What it cannot prove is taken out."""

from __future__ import annotations

import json
import re
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

MAX_TITLE, MAX_SECTION = 200, 400
MAX_REMARKS, MAX_REMARK = 5, 300
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


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
    """Write one JSON object, a passage a line: no title, section or text can pass for another passage or for the question."""
    passages = [
        {
            "n": context.n,
            "title": closed_up(context.parent.best.chunk.title or "", MAX_TITLE),
            "section": closed_up(context.view.section or "", MAX_SECTION),
            "text": closed_up(context.text),
        }
        for context in contexts
    ]
    lines = ",\n".join(json.dumps(passage, ensure_ascii=False) for passage in passages)
    return f'{{"passages": [\n{lines}\n],\n"question": {json.dumps(closed_up(question), ensure_ascii=False)}}}'


def closed_up(text: str, most: int | None = None) -> str:
    """Replace control characters and line breaks by single spaces; keep at most `most` characters."""
    return " ".join(CONTROLS.sub(" ", text).split())[:most]


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
    limitations = [*_stated(written.limitations), *([f"Sentences without a verified citation were left out: {dropped}."] if dropped else [])]
    return Draft(
        tuple(kept),
        tuple(citations.values()),
        reply.model,
        _stated(written.assumptions),
        tuple(limitations),
        calls=reply.calls,
        tokens=reply.usage.input_tokens + reply.usage.output_tokens,
        reply=reply,
    )


def _stated(remarks: Sequence[str]) -> tuple[str, ...]:
    """Nothing proves what a model says of its own answer: it is short, and called the model's."""
    closed = [closed_up(remark, MAX_REMARK) for remark in remarks[:MAX_REMARKS]]
    return tuple(f"Stated by the model: {remark}" for remark in closed if remark)


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
