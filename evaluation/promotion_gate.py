"""What a generation must show before it may answer, decided before it is looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evaluation.comparison_request import ComparisonRequest, format_validation_errors
from schemas.errors import InvalidRequest
from schemas.values import Value

Metric = Literal["ndcg@10", "mrr@10"]
Share = Annotated[float, Field(ge=0, le=1)]
REMEDY = "The page 'Compare and switch generations' shows what a gate may say."


class Gain(Value):
    """The new generation must be better, beyond chance."""

    metric: Metric = "ndcg@10"
    above: float = Field(0.0, ge=0, lt=1, description="the lower end of the interval of the difference must lie above this")


class PromotionGate(Value):
    """Each bound must hold. Intervals are those of the differences, new less old, at 95 %."""

    gain: Gain | None = Field(Gain(), description="null: no gain is asked for, such as for a cheaper index that is as good")
    loss: dict[Metric, Share] = Field({"ndcg@10": 0.02, "mrr@10": 0.05}, description="the lower end of the interval may lie so far below 0")
    min_queries: int = Field(20, ge=1, title="Questions", description="compared at least")
    min_judged_queries: int = Field(10, ge=0, title="Judged questions", description="with something relevant known in both")
    min_mapped_share: float = Field(0.9, ge=0, le=1, description="of the judgements, that have a chunk in the new generation")
    min_judged_share: float = Field(0.0, ge=0, le=1, description="of the first ten results of the new one, that somebody has judged")
    min_overlap: float = Field(0.0, ge=0, le=1, description="of the first ten results, on average")
    max_refusals: float = Field(0.05, ge=0, le=1, description="the upper end of the interval of the difference in refusals")
    max_latency_ratio: float = Field(2.0, gt=0, description="of the 95th percentiles, new to old")
    max_failed: int = Field(0, ge=0, description="questions that could not be asked")


class PromotionRequest(BaseModel):
    """Without a gate the generation answers from now on if it has every document; with one, only if the comparison with the live one passes it."""

    model_config = ConfigDict(extra="forbid")

    gate: PromotionGate | None = None
    comparison: ComparisonRequest = ComparisonRequest()


def read_gate(path: Path) -> PromotionGate:
    """A YAML file. Raises InvalidRequest that names what is wrong."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidRequest(f"{path} cannot be read: {error}", code="NOT_A_GATE", remedy=REMEDY) from error
    try:
        return PromotionGate.model_validate({} if data is None else data)
    except ValidationError as error:
        raise InvalidRequest(f"{path}: {format_validation_errors(error)}", code="NOT_A_GATE", remedy=REMEDY) from error


def list_violations(gate: PromotionGate, report: dict[str, Any]) -> list[str]:
    """Why the gate does not hold, of the report of a comparison; none: it holds. A gain that was not measured is none."""
    return [
        *_check_counts(gate, report),
        *_check_gain(gate.gain, report["intervals"]),
        *(reason for metric, max_loss in gate.loss.items() for reason in _check_loss(metric, max_loss, report["intervals"])),
        *_check_similarity(gate, report),
    ]


def _check_counts(gate: PromotionGate, report: dict[str, Any]) -> list[str]:
    counts = (("queries", "questions were compared", gate.min_queries), ("judged_queries", "questions are judged in both", gate.min_judged_queries))
    violations = [f"{report[name]} {label}, {minimum} are asked for" for name, label, minimum in counts if report[name] < minimum]
    n_failed = len(report["failed"])
    return violations + ([f"{n_failed} questions could not be asked, {gate.max_failed} may"] if n_failed > gate.max_failed else [])


def _check_gain(gain: Gain | None, intervals: dict[str, Any]) -> list[str]:
    if gain is None:
        return []
    interval = intervals.get(gain.metric)
    if interval is None:
        return [f"no gain in {gain.metric} is shown: no question is judged in both"]
    return [] if interval["low"] > gain.above else [f"no gain in {gain.metric}: {_format_interval(interval)}, whose lower end must lie above {gain.above:g}"]


def _check_loss(metric: str, max_loss: float, intervals: dict[str, Any]) -> list[str]:
    interval = intervals.get(metric)
    return (
        [f"{metric} may have lost: {_format_interval(interval)}, whose lower end may not lie below {-max_loss:g}"]
        if interval and interval["low"] < -max_loss
        else []
    )


def _check_similarity(gate: PromotionGate, report: dict[str, Any]) -> list[str]:
    bounds = (
        ("mapped_share", report["mapped_share"]["B"], gate.min_mapped_share),
        ("judged_share", report["judged_share"]["B"], gate.min_judged_share),
        ("overlap@10", report["overlap@10"], gate.min_overlap),
    )
    reasons = [f"{name} is {value:g}, {bound:g} is asked for" for name, value, bound in bounds if value is not None and value < bound]
    refusals = report["intervals"].get("refusals")
    if refusals and refusals["high"] > gate.max_refusals:
        reasons.append(f"refusals may have grown: {_format_interval(refusals)}, whose upper end may not lie above {gate.max_refusals:g}")
    return reasons + _check_latency(gate.max_latency_ratio, report["latency_ms"])


def _check_latency(max_ratio: float, latency: dict[str, Any]) -> list[str]:
    old_p95, new_p95 = latency["A"]["p95"], latency["B"]["p95"]
    return (
        [f"the 95th percentile of latency went from {old_p95:g} to {new_p95:g} ms, more than {max_ratio:g} times"]
        if old_p95 and new_p95 > max_ratio * old_p95
        else []
    )


def _format_interval(interval: dict[str, Any]) -> str:
    return f"{interval['difference']:+.4f} [{interval['low']:+.4f}, {interval['high']:+.4f}]"
