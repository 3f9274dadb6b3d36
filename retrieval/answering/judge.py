"""Judge an answer by nine checks, each by a rule, a model, or both.

A rule that can prove a fault decides; where it cannot tell, or where it only compares words, the
judge model decides. A check that neither can make is reported as not checked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from retrieval.answering.answer_drafts import AnswerDraft
from retrieval.answering.judge_rules import JudgedAnswer, JudgedSentence, RuleResult, check_by_rule
from retrieval.prompting import (
    build_object_schema,
    describe_failure,
    normalize_whitespace,
    render_prompt,
)
from retrieval.question.query_plan import QueryPlan
from retrieval.ranking.passages import ContextPassage
from retrieval.redaction import Redactor
from schemas.errors import AnabranchError, InvalidModelOutput
from schemas.judge_verdicts import CheckName, JudgeCheck, JudgeVerdict, Violation
from schemas.ports.engines import ChatModel, ChatReply
from schemas.profiles import CheckProfile, JudgeProfile

MAX_EVIDENCE = 300
# Minimum score by the judge model to pass.
MODEL_THRESHOLD = 0.5


class ModelCheck(BaseModel):
    """One check in the reply of the model."""

    model_config = ConfigDict(extra="forbid")

    score: float = Field(ge=0, le=1)
    evidence: str


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


_CHECK_SCHEMA = build_object_schema({"score": {"type": "number"}, "evidence": {"type": "string"}})
CHECK_NAMES: tuple[CheckName, ...] = get_args(CheckName)
# Rules that only compare words: a model that reads the sentences knows better.
_WORD_RULES = frozenset({"groundedness", "relevance"})

NO_MODEL = "no judge model is used"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, with the reply of the judge model or its error; neither if it was not asked."""

    verdict: JudgeVerdict
    model: str | None = None
    reply: ChatReply | None = None
    error: str | None = None
    prompt_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class JudgedDraft:
    """A draft with its judgement, which is None for a draft without sentences.

    `rejected` is the first attempt, if the answer was written once more.
    """

    draft: AnswerDraft
    judgement: Judgement | None = None
    rejected: JudgedDraft | None = None

    @property
    def verdict(self) -> JudgeVerdict | None:
        """The verdict, with the one on the first attempt."""
        if self.judgement is None or self.rejected is None:
            return self.judgement.verdict if self.judgement else None
        return self.judgement.verdict.model_copy(update={"rejected": self.rejected.verdict})

    @property
    def is_passed(self) -> bool:
        return self.judgement is not None and self.judgement.verdict.decision == "PASS"

    def mark_retryable(self) -> JudgedDraft:
        """Return the draft as a first attempt, which is written once more."""
        assert self.judgement is not None
        verdict = self.judgement.verdict.model_copy(update={"decision": "FAIL_RETRYABLE"})
        return replace(self, judgement=replace(self.judgement, verdict=verdict))

    @property
    def has_engine_failure(self) -> bool:
        judge_failed = self.judgement is not None and self.judgement.error is not None
        return self.draft.has_engine_failure or judge_failed


async def judge_answer(
    answer: JudgedAnswer, profile: JudgeProfile, model: ChatModel | None, redactor: Redactor
) -> Judgement:
    """Check the answer. A judge model that fails leaves its checks to the rules."""
    names = list_active_checks(profile)
    if model is None or profile.model != "default" or not names:
        return Judgement(decide(answer, profile))
    prompt = render_prompt("judge", profile.prompt, answer.language)
    try:
        async with asyncio.timeout(profile.timeout_s):
            reply = await model.complete(
                prompt.system,
                build_review_prompt(answer, redactor),
                build_object_schema(dict.fromkeys(names, _CHECK_SCHEMA)),
                name="judge",
                options=prompt.options,
            )
        reviews = parse_review(reply, names)
    except (AnabranchError, TimeoutError) as error:
        detail = describe_failure(error, profile.timeout_s)
        reason = f"the judge model {model.model} gave no usable reply: {detail}"
        verdict = decide(answer, profile, missing_model=reason)
        return Judgement(verdict, model.model, None, reason, prompt.sha256)
    verdict = decide(answer, profile, reviews)
    return Judgement(verdict, reply.model, reply, None, prompt.sha256)


def list_active_checks(profile: JudgeProfile) -> list[CheckName]:
    return [name for name in CHECK_NAMES if get_check_profile(profile, name).severity != "off"]


def decide(
    answer: JudgedAnswer,
    profile: JudgeProfile,
    reviews: Mapping[CheckName, ModelCheck] = MappingProxyType({}),
    missing_model: str = NO_MODEL,
) -> JudgeVerdict:
    """Combine rules and reviews into a verdict: FAIL_BLOCKED if a hard check failed, else PASS.

    `missing_model` says why a check has no review.
    """
    checks = [
        _combine(
            name,
            check_by_rule(name, answer),
            reviews.get(name),
            get_check_profile(profile, name),
            missing_model,
        )
        for name in CHECK_NAMES
    ]
    violations = [
        Violation(check=check.name, severity=check.severity, evidence=check.evidence or "")
        for check in checks
        if check.result == "fail"
    ]
    scores = [check.score for check in checks if check.score is not None]
    return JudgeVerdict(
        decision=(
            "FAIL_BLOCKED"
            if any(violation.severity == "hard" for violation in violations)
            else "PASS"
        ),
        overall_score=sum(scores) / len(scores) if scores else None,
        checks=checks,
        violations=sorted(violations, key=lambda violation: violation.severity != "hard"),
    )


def get_check_profile(profile: JudgeProfile, name: CheckName) -> CheckProfile:
    settings: CheckProfile = getattr(profile, name)
    return settings


def _combine(
    name: CheckName,
    rule: RuleResult | None,
    review: ModelCheck | None,
    profile: CheckProfile,
    missing_model: str,
) -> JudgeCheck:
    if profile.severity == "off":
        return JudgeCheck(
            name=name,
            kind="deterministic",
            result="not_checked",
            evidence="switched off by the profile",
        )
    rule_fails = rule is not None and rule.score < profile.threshold
    if rule is not None and (
        (rule_fails and rule.can_fail and (review is None or name not in _WORD_RULES))
        or (review is None and not rule_fails)
    ):
        return JudgeCheck(
            name=name,
            kind="deterministic",
            result="fail" if rule_fails else "pass",
            score=rule.score,
            threshold=profile.threshold,
            severity=profile.severity,
            evidence=rule.evidence,
        )
    if review is None:
        return JudgeCheck(
            name=name,
            kind="deterministic" if rule else "model",
            result="not_checked",
            severity=profile.severity,
            evidence=rule.evidence if rule else missing_model,
        )
    return JudgeCheck(
        name=name,
        kind="model",
        result="pass" if review.score >= MODEL_THRESHOLD else "fail",
        score=review.score,
        threshold=MODEL_THRESHOLD,
        severity=profile.severity,
        evidence=review.evidence[:MAX_EVIDENCE],
    )


def build_judged_answer(
    draft: AnswerDraft, contexts: Sequence[ContextPassage], plan: QueryPlan, redactor: Redactor
) -> JudgedAnswer:
    """Collect the sentences of a draft, as they will be shown, with their quotes and the passages
    of these.
    """
    citations = {citation.n: citation for citation in draft.citations}
    statements = {fact.n: " ".join(fact.statement.split()) for fact in draft.facts}
    passages = [item for context in contexts for item in (context, *context.duplicates)]
    texts_by_chunk = {
        chunk.chunk_id: passage.readable_text for passage in passages for chunk in passage.children
    }
    languages = {
        chunk.chunk_id: chunk.language for passage in passages for chunk in passage.children
    }
    sentences = []
    for sentence in draft.sentences:
        cited = [citations[n] for n in sentence.citations if n in citations]
        # Without line breaks, as in the answer: they may stand within a number.
        quotes = [" ".join([*(item.header or ()), *item.quote.split()]) for item in cited]
        quotes += [statements[n] for n in sentence.facts]
        read = [texts_by_chunk[item.chunk_id] for item in cited if item.chunk_id in texts_by_chunk]
        # Quoted answers mark the value in bold, which would separate it from its word.
        text = redactor.mask(sentence.text.replace("**", ""))
        sentences.append(JudgedSentence(text, tuple(quotes), tuple(dict.fromkeys(read))))
    cited_languages = {languages.get(citation.chunk_id) for citation in draft.citations}
    return JudgedAnswer(
        plan.question,
        plan.language,
        tuple(sentences),
        is_foreign=bool(cited_languages)
        and all(plan.is_foreign(language) for language in cited_languages),
        has_conflict=draft.conflict is not None,
        phone_regions=tuple(redactor.profile.phone_regions),
    )
