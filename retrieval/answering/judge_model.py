"""Checks of an answer by a judge model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from retrieval.answering.judge_rules import JudgedAnswer
from retrieval.prompting import Prompt, build_object_schema, normalize_whitespace
from retrieval.redaction import Redactor
from schemas.errors import InvalidModelOutput
from schemas.judge_verdicts import CheckName
from schemas.ports.engines import ChatModel, ChatReply

MAX_EVIDENCE = 300


class ModelCheck(BaseModel):
    """One check in the reply of the model."""

    model_config = ConfigDict(extra="forbid")

    score: float = Field(ge=0, le=1)
    evidence: str


async def request_review(
    answer: JudgedAnswer,
    names: Sequence[CheckName],
    judge: ChatModel,
    prompt: Prompt,
    redactor: Redactor,
) -> ChatReply:
    """Ask the judge model for the checks. Raises what the chat port raises."""
    return await judge.complete(
        prompt.system,
        build_review_prompt(answer, redactor),
        build_review_schema(names),
        name="judge",
        options=prompt.options,
    )


def parse_review(reply: ChatReply, names: Sequence[CheckName]) -> dict[CheckName, ModelCheck]:
    """Return the checks of a reply. Raises InvalidModelOutput for a reply of another shape."""
    try:
        return {name: ModelCheck.model_validate(reply.data[name]) for name in names}
    except (KeyError, ValidationError) as error:
        raise InvalidModelOutput(
            f"Reply of {reply.model} does not match the judge schema."
        ) from error


def build_review_prompt(answer: JudgedAnswer, redactor: Redactor) -> str:
    """Write question, answer, quotes and passages as one JSON object, without identifiers."""

    def clean(texts: Sequence[str]) -> list[str]:
        return [normalize_whitespace(redactor.mask(text)) for text in texts]

    passages = dict.fromkeys(item for part in answer.sentences for item in part.passages)
    content = {
        "question": clean([answer.question])[0],
        "answer": [
            {"text": clean([sentence.text])[0], "quotes": clean(sentence.quotes)}
            for sentence in answer.sentences
        ],
        "passages": clean(list(passages)),
    }
    return json.dumps(content, ensure_ascii=False)


def build_review_schema(names: Sequence[CheckName]) -> Mapping[str, Any]:
    check = build_object_schema({"score": {"type": "number"}, "evidence": {"type": "string"}})
    return build_object_schema(dict.fromkeys(names, check))
