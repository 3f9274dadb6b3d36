"""Printing of an answer's confidence and of the scores behind each rank, wrapped to the terminal's width."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anabranch.cli.output import to_single_line

MIN_WIDTH = 40


def print_confidence(answer: Mapping[str, Any]) -> None:
    confidence = answer.get("confidence")
    if confidence and not answer["refused"]:
        _print_wrapped(f"confidence: {confidence['level']} ({'; '.join(confidence['reasons'])})")
    for name in ("assumptions", "limitations"):
        for sentence in answer.get(name) or []:
            _print_wrapped(f"{name.removesuffix('s')}: {sentence}")


def print_explanation(
    trace: Mapping[str, Any],
    results: Sequence[Mapping[str, Any]],
    format_location: Callable[[Mapping[str, Any]], str],
) -> None:
    """Print the route, the threshold, and each passage's rank and score per channel."""
    route = trace["route"]
    print("\nexplanation")
    _print_wrapped(
        f"route: {route['mode']}, decided by {route['decided_by']}: {route['reason']}", "  "
    )
    for name, channel in trace["channels"].items():
        _print_wrapped(
            f"{name}: {channel['returned']} of at most {channel['k']} candidates, best {_format_number(channel['best'])}",
            "  ",
        )
    for name, reason in trace["channels_failed"].items():
        _print_wrapped(f"{name}: failed: {reason}", "  ")
    if trace.get("threshold") is not None:
        _print_wrapped(
            f"refusal: best rerank score {_format_number(trace['max_rerank_score'])}, threshold {_format_number(trace['threshold'])}",
            "  ",
        )
    for result in results:
        _print_wrapped(f"{result['rank']}. {format_location(result)}", "  ")
        ranks = [
            f"{name} rank {ranking['rank']}, score {_format_number(ranking['score'])}"
            for name, ranking in result["channels"].items()
        ]
        _print_wrapped("; ".join(ranks) or "not ranked by a channel", "     ")
        numbers = {
            name: value
            for name, value in (result.get("explanation") or {}).items()
            if isinstance(value, int | float)
        }
        if numbers:
            _print_wrapped(
                ", ".join(f"{name} {_format_number(value)}" for name, value in numbers.items()),
                "     ",
            )


def _print_wrapped(text: str, indent: str = "") -> None:
    width = max(MIN_WIDTH, shutil.get_terminal_size().columns)
    print(
        textwrap.fill(
            to_single_line(text),
            width,
            initial_indent=indent,
            subsequent_indent=f"{indent}  ",
            break_on_hyphens=False,
        )
    )


def _format_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
