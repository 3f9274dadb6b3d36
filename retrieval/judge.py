"""The judge: nine checks of an answer. What costs nothing is checked here; the rest says that it was not."""

from __future__ import annotations

import re
from collections.abc import Sequence

from retrieval.answer.drafts import Draft
from retrieval.answer.support import share_held, unsupported_numbers
from retrieval.pack import Context
from schemas.questions import Check, Judgement

COVERAGE = 1.0
GROUNDED = 0.5
_PII = {
    "e-mail": re.compile(r"(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)++"),
    "US social security number": re.compile(r"\b\d{3}-\d{2}-\d{4}\b"),
    "CPF": re.compile(r"\b\d{3}\.\d{3}\.\d{3}-\d{2}\b"),
    "CNPJ": re.compile(r"\b\d{2}\.\d{3}\.\d{3}/\d{4}-\d{2}\b"),
    "card number": re.compile(r"\b(?:\d{4}[ -]){3}\d{4}\b"),
}
NEEDS_A_MODEL = ("relevance", "consistency", "toxicity", "bias", "contradiction")


def judge(draft: Draft, contexts: Sequence[Context], question: str) -> Judgement:
    """FAIL_BLOCKED when a hard check fails: a number that stands neither in a context nor in the question, or a sentence that no citation covers."""
    checks = [_coverage(draft), _groundedness(draft, contexts), _hallucination(draft, contexts, question), _pii(draft)]
    checks += [Check(name=name, kind="model", result="not_checked", evidence="no judge model is configured") for name in NEEDS_A_MODEL]
    blocked = any(check.result == "fail" and check.severity == "hard" for check in checks)
    return Judgement(decision="FAIL_BLOCKED" if blocked else "PASS", checks=checks)


def _coverage(draft: Draft) -> Check:
    known = {citation.n for citation in draft.citations}
    covered = [bool(known.intersection(sentence.citations)) for sentence in draft.sentences]
    score = sum(covered) / len(covered) if covered else 0.0
    return _check("citation_coverage", score, COVERAGE, "hard", f"{sum(covered)} of {len(covered)} sentences have a verified citation")


def _groundedness(draft: Draft, contexts: Sequence[Context]) -> Check:
    """Words of the answer that the contexts hold. Soft: an answer in another language than its sources shares few words with them."""
    score = share_held(_words_of(draft), [context.readable for context in contexts])
    return _check("groundedness", score, GROUNDED, "soft", f"the contexts hold {score:.0%} of the answer's words")


def _hallucination(draft: Draft, contexts: Sequence[Context], question: str) -> Check:
    strangers = unsupported_numbers(_words_of(draft), [question, *(context.readable for context in contexts)])
    evidence = f"numbers in no context: {', '.join(strangers[:5])}" if strangers else "every number stands in a context; other statements were not checked"
    return _check("hallucination", 0.0 if strangers else 1.0, 1.0, "hard", evidence)


def _pii(draft: Draft) -> Check:
    found = [name for name, pattern in _PII.items() if pattern.search(_words_of(draft))]
    return _check("pii", 0.0 if found else 1.0, 1.0, "soft", f"holds {', '.join(found)}" if found else "no personal identifier of a known form")


def _check(name: str, score: float, threshold: float, severity: str, evidence: str) -> Check:
    return Check.model_validate(
        {"name": name, "kind": "deterministic", "result": "pass" if score >= threshold else "fail", "score": score, "threshold": threshold,
         "severity": severity, "evidence": evidence}
    )  # fmt: skip


def _words_of(draft: Draft) -> str:
    return " ".join(sentence.text for sentence in draft.sentences).replace("**", "")
