"""Judge an answer by nine checks. Four are deterministic and run here.

The other five need a judge model and are reported as not checked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from retrieval.answer.drafts import AnswerDraft
from retrieval.answer.support import compute_support, find_unsupported_numbers
from retrieval.context_packing import ContextPassage
from schemas.questions import JudgeCheck, JudgeVerdict

MIN_COVERAGE = 1.0
MIN_GROUNDEDNESS = 0.5
_PII = {
    "e-mail": re.compile(r"(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)++"),
    "US social security number": re.compile(r"\b\d{3}-\d{2}-\d{4}\b"),
    "CPF": re.compile(r"\b\d{3}\.\d{3}\.\d{3}-\d{2}\b"),
    "CNPJ": re.compile(r"\b\d{2}\.\d{3}\.\d{3}/\d{4}-\d{2}\b"),
    "card number": re.compile(r"\b(?:\d{4}[ -]){3}\d{4}\b"),
}
MODEL_CHECKS = ("relevance", "consistency", "toxicity", "bias", "contradiction")


def judge_draft(
    draft: AnswerDraft, contexts: Sequence[ContextPassage], question: str
) -> JudgeVerdict:
    """Run all checks; FAIL_BLOCKED when a hard check fails.

    Hard checks: a number that occurs neither in a context nor in the query, or a sentence without a
    citation.
    """
    checks = [
        _check_coverage(draft),
        _check_groundedness(draft, contexts),
        _check_hallucination(draft, contexts, question),
        _check_pii(draft),
    ]
    checks += [
        JudgeCheck(
            name=name, kind="model", result="not_checked", evidence="no judge model is configured"
        )
        for name in MODEL_CHECKS
    ]
    blocked = any(check.result == "fail" and check.severity == "hard" for check in checks)
    return JudgeVerdict(decision="FAIL_BLOCKED" if blocked else "PASS", checks=checks)


def _check_coverage(draft: AnswerDraft) -> JudgeCheck:
    citation_numbers = {citation.n for citation in draft.citations}
    covered = [
        bool(citation_numbers.intersection(sentence.citations)) for sentence in draft.sentences
    ]
    score = sum(covered) / len(covered) if covered else 0.0
    return _build_check(
        "citation_coverage",
        score,
        MIN_COVERAGE,
        "hard",
        f"{sum(covered)} of {len(covered)} sentences have a verified citation",
    )


def _check_groundedness(draft: AnswerDraft, contexts: Sequence[ContextPassage]) -> JudgeCheck:
    """Measure the share of the answer's words that the contexts hold.

    Soft: answers in another language share few words with their sources.
    """
    score = compute_support(
        _get_answer_text(draft), [context.readable_text for context in contexts]
    )
    return _build_check(
        "groundedness",
        score,
        MIN_GROUNDEDNESS,
        "soft",
        f"the contexts hold {score:.0%} of the answer's words",
    )


def _check_hallucination(
    draft: AnswerDraft, contexts: Sequence[ContextPassage], question: str
) -> JudgeCheck:
    unsupported = find_unsupported_numbers(
        _get_answer_text(draft), [question, *(context.readable_text for context in contexts)]
    )
    evidence = (
        f"numbers in no context: {', '.join(unsupported[:5])}"
        if unsupported
        else "every number stands in a context; other statements were not checked"
    )
    return _build_check("hallucination", 0.0 if unsupported else 1.0, 1.0, "hard", evidence)


def _check_pii(draft: AnswerDraft) -> JudgeCheck:
    pii_kinds = [name for name, pattern in _PII.items() if pattern.search(_get_answer_text(draft))]
    return _build_check(
        "pii",
        0.0 if pii_kinds else 1.0,
        1.0,
        "soft",
        f"holds {', '.join(pii_kinds)}" if pii_kinds else "no personal identifier of a known form",
    )


def _build_check(
    name: str, score: float, threshold: float, severity: str, evidence: str
) -> JudgeCheck:
    return JudgeCheck.model_validate(
        {"name": name, "kind": "deterministic", "result": "pass" if score >= threshold else "fail", "score": score, "threshold": threshold,
         "severity": severity, "evidence": evidence}
    )  # fmt: skip


def _get_answer_text(draft: AnswerDraft) -> str:
    return " ".join(sentence.text for sentence in draft.sentences).replace("**", "")
