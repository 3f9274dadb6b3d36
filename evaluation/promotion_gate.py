"""Promotion gates: conditions that a generation must meet before it can become live."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError

from evaluation.comparison import ComparisonRequest
from schemas.errors import InvalidRequest, format_invalid_fields
from schemas.models import Request
from schemas.values import Value

Metric = Literal["ndcg@10", "mrr@10"]
Share = Annotated[float, Field(ge=0, le=1)]
REMEDY = "Correct the gate. See 'Compare and switch generations' in the documentation."


class Gain(Value):
    """A required improvement."""

    metric: Metric = Field("ndcg@10", description="Metric that must improve.")
    above: float = Field(0.0, ge=0, lt=1)
    """Minimum of the lower end of the difference's interval, exclusive."""


class PromotionGate(Value):
    """Conditions for a promotion; all must hold.

    Intervals are 95 % intervals of the difference, new minus old.
    """

    gain: Gain | None = Field(default_factory=Gain)
    """Required improvement; by default the interval of ndcg@10 lies above 0. Null requires none,
    such as for a cheaper index of equal quality.
    """
    loss: dict[Metric, Share] = {"ndcg@10": 0.02, "mrr@10": 0.05}
    """Tolerated loss by metric: how far the lower end of the interval may be below 0."""
    min_queries: int = Field(20, ge=1, title="Questions")
    """Minimum number of compared questions."""
    min_judged_queries: int = Field(10, ge=0, title="Judged questions")
    """Minimum number of questions with a relevant judgement in both generations."""
    min_mapped_share: float = Field(0.9, ge=0, le=1)
    """Minimum share of judgements that map to a chunk of the new generation."""
    min_judged_share: float = Field(0.0, ge=0, le=1)
    """Minimum share of the new generation's first ten results that are judged."""
    min_overlap: float = Field(0.0, ge=0, le=1)
    """Minimum mean overlap of the first ten results."""
    max_refusals: float = Field(0.05, ge=0, le=1)
    """Maximum of the upper end of the interval of the difference in refusals."""
    max_latency_ratio: float = Field(2.0, gt=0)
    """Maximum ratio of the 95th percentiles of latency, new to old."""
    max_failed: int = Field(0, ge=0, description="Maximum number of failed questions.")


class PromotionRequest(Request):
    """Make a generation live.

    The generation must have every document and a calibration of its own. With a gate, it must also
    pass a comparison with the live generation.
    """

    force: bool = Field(False, description="Promote the generation without a calibration.")

    gate: PromotionGate | None = None
    """Conditions that the comparison must meet."""
    comparison: ComparisonRequest = ComparisonRequest()
    """Questions to compare the generations with."""


def read_gate(path: Path) -> PromotionGate:
    """Read a gate from a YAML file. Raises InvalidRequest."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidRequest(
            f"Cannot read {path}: {error}", code="NOT_A_GATE", remedy=REMEDY
        ) from error
    try:
        # An empty file is a gate with the defaults.
        return PromotionGate.model_validate({} if data is None else data)
    except ValidationError as error:
        raise InvalidRequest(
            f"{path}: {format_invalid_fields(error.errors(include_input=False)[:5])}.",
            code="NOT_A_GATE",
            remedy=REMEDY,
        ) from error


def list_violations(gate: PromotionGate, report: dict[str, Any]) -> list[str]:
    """Return the conditions that the comparison report violates.

    A gain that was not measured is a violation.
    """
    return [
        *_check_counts(gate, report),
        *_check_gain_and_loss(gate, report["intervals"]),
        *_check_bounds(gate, report),
    ]


def _check_counts(gate: PromotionGate, report: dict[str, Any]) -> list[str]:
    counts = (
        ("queries", "questions were compared", gate.min_queries),
        ("judged_queries", "questions are judged in both", gate.min_judged_queries),
    )
    violations = [
        f"{report[name]} {label}, the minimum is {minimum}"
        for name, label, minimum in counts
        if report[name] < minimum
    ]
    n_failed = len(report["failed"])
    if n_failed > gate.max_failed:
        violations.append(f"{n_failed} questions failed, the maximum is {gate.max_failed}")
    return violations


def _check_gain_and_loss(gate: PromotionGate, intervals: dict[str, Any]) -> list[str]:
    violations = []
    if gate.gain is not None:
        metric, interval = gate.gain.metric, intervals.get(gate.gain.metric)
        if interval is None:
            violations.append(f"no gain in {metric}: no question is judged in both")
        # The lower end, so that no gain by chance passes.
        elif not interval["low"] > gate.gain.above:
            violations.append(
                f"no gain in {metric}: {_format_interval(interval)}, "
                f"the lower end must exceed {gate.gain.above:g}"
            )
    for metric, max_loss in gate.loss.items():
        interval = intervals.get(metric)
        # Without judgements there is no interval; min_judged_queries covers that case.
        if interval and not interval["low"] >= -max_loss:
            violations.append(
                f"loss in {metric}: {_format_interval(interval)}, "
                f"the lower end must not be below {-max_loss:g}"
            )
    return violations


def _check_bounds(gate: PromotionGate, report: dict[str, Any]) -> list[str]:
    bounds = (
        ("mapped_share", report["mapped_share"]["B"], gate.min_mapped_share),
        ("judged_share", report["judged_share"]["B"], gate.min_judged_share),
        ("overlap@10", report["overlap@10"], gate.min_overlap),
    )
    violations = [
        f"{name} is {value:g}, the minimum is {bound:g}"
        for name, value, bound in bounds
        if value is not None and value < bound
    ]
    refusals = report["intervals"].get("refusals")
    # The upper end: an increase that the interval cannot exclude counts.
    if refusals and refusals["high"] > gate.max_refusals:
        violations.append(
            f"more refusals: {_format_interval(refusals)}, "
            f"the upper end must not exceed {gate.max_refusals:g}"
        )
    old_p95, new_p95 = report["latency_ms"]["A"]["p95"], report["latency_ms"]["B"]["p95"]
    # Without a baseline there is no ratio.
    if old_p95 and new_p95 > gate.max_latency_ratio * old_p95:
        violations.append(
            f"p95 latency grew from {old_p95:g} to {new_p95:g} ms, "
            f"the maximum ratio is {gate.max_latency_ratio:g}"
        )
    return violations


def _format_interval(interval: dict[str, Any]) -> str:
    return f"{interval['difference']:+.4f} [{interval['low']:+.4f}, {interval['high']:+.4f}]"
