"""Why an answer reads as it does, for people: confidence, what limits it, and the numbers behind every rank, at the terminal's width."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anabranch.cli.output import one_line

NARROW = 40


def print_standing(answer: Mapping[str, Any]) -> None:
    """How far the answer can be relied on."""
    confidence = answer.get("confidence")
    if confidence and not answer["refused"]:
        _print(f"confidence: {confidence['level']} ({'; '.join(confidence['reasons'])})")
    for name in ("assumptions", "limitations"):
        for sentence in answer.get(name) or []:
            _print(f"{name.removesuffix('s')}: {sentence}")


def print_explanation(trace: Mapping[str, Any], results: Sequence[Mapping[str, Any]], place: Callable[[Mapping[str, Any]], str]) -> None:
    """The route, the threshold, and of each passage its rank and score in every channel and the numbers that make its score."""
    route = trace["route"]
    print("\nexplanation")
    _print(f"route: {route['mode']}, decided by {route['decided_by']}: {route['reason']}", "  ")
    for name, channel in trace["channels"].items():
        _print(f"{name}: {channel['returned']} of at most {channel['k']} candidates, best {_number(channel['best'])}", "  ")
    for name, reason in trace["channels_failed"].items():
        _print(f"{name}: failed: {reason}", "  ")
    if trace.get("threshold") is not None:
        _print(f"refusal: best rerank score {_number(trace['max_rerank_score'])}, threshold {_number(trace['threshold'])}", "  ")
    for result in results:
        _print(f"{result['rank']}. {place(result)}", "  ")
        ranks = [f"{name} rank {found['rank']}, score {_number(found['score'])}" for name, found in result["channels"].items()]
        _print("; ".join(ranks) or "found by no channel itself", "     ")
        numbers = {name: value for name, value in (result.get("explanation") or {}).items() if isinstance(value, int | float)}
        if numbers:
            _print(", ".join(f"{name} {_number(value)}" for name, value in numbers.items()), "     ")


def _print(text: str, indent: str = "") -> None:
    width = max(NARROW, shutil.get_terminal_size().columns)
    print(textwrap.fill(one_line(text), width, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
