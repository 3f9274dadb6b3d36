"""The verdict of the judge on an answer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.values import Value

CheckName = Literal[
    "citation_coverage",
    "groundedness",
    "hallucination",
    "relevance",
    "consistency",
    "toxicity",
    "pii",
    "bias",
    "contradiction",
]


class JudgeCheck(Value):
    """One check of the answer."""

    name: CheckName = Field(description="Name of the check.")
    kind: Literal["deterministic", "model"]
    """Whether the check is deterministic or uses a model."""
    result: Literal["pass", "fail", "not_checked"] = Field(description="Result of the check.")
    score: float | None = Field(None, description="Score of the answer in this check.")
    threshold: float | None = Field(None, description="Minimum score to pass.")
    severity: Literal["hard", "soft"] = "soft"
    """Whether a failure blocks the answer (`hard`) or lowers its confidence (`soft`)."""
    evidence: str | None = Field(None, description="Explanation of the result.")


class Violation(Value):
    """A failed check."""

    check: CheckName = Field(description="Name of the check.")
    severity: Literal["hard", "soft"]
    """`hard`: a failure blocks the answer; `soft`: it lowers its confidence."""
    evidence: str = Field(description="What was found.")


class JudgeVerdict(Value):
    """Result of checking the answer."""

    decision: Literal["PASS", "FAIL_RETRYABLE", "FAIL_BLOCKED"]
    """`PASS`, `FAIL_RETRYABLE` if another attempt may pass, or `FAIL_BLOCKED`."""
    overall_score: float | None = None
    """Mean score of the checks that were made, or null if none was."""
    checks: list[JudgeCheck] = Field(description="The checks, in order.")
    violations: list[Violation] = Field([], description="The failed checks, hard ones first.")
    rejected: JudgeVerdict | None = None
    """Verdict on the first attempt, if the answer was written once more."""
