"""`anabranch query` and `anabranch search`: print an answer, its citations and its explanation."""

from __future__ import annotations

import asyncio
import shutil
import sys
import textwrap
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from anabranch.cli.api_calls import post
from anabranch.cli.errors import OK, REFUSED, translate_phrases
from anabranch.cli.options import (
    QUERY_STAGES,
    REMOTE,
    RemoteOptions,
    parse_channels,
    parse_metadata,
)
from anabranch.cli.output import (
    MIN_WIDTH,
    print_answer,
    print_json_line,
    print_stderr,
    to_single_line,
    wrap_text,
)
from schemas.errors import ConfigurationError, TransientError


@Parameter(name="*")
@dataclass(frozen=True)
class QueryOptions:
    """Options of a query or search."""

    k: Annotated[int, Parameter(validator=Number(gte=1))] = 10
    """Number of passages to return."""
    profile: str | None = None
    """Workflow profile.  [default: that of the collection, or `default`]"""
    profiles: tuple[str, ...] = ()
    """Use this profile of a type instead of the workflow's: fusion=rrf. Repeatable."""
    override: tuple[str, ...] = ()
    """Override a setting of the profiles: semantic.k=50. Repeatable."""
    mode: Literal["auto", "vector", "graph", "hybrid"] = "auto"
    """Retrieval mode; auto chooses by the question."""
    channels: str | None = None
    """Only use these channels, comma-separated, such as lexical,semantic."""
    collection: tuple[str, ...] = ()
    """Only search this collection. Repeatable."""
    tag: tuple[str, ...] = ()
    """Only search documents with this tag. Repeatable: all must match."""
    metadata: tuple[str, ...] = ()
    """Only search documents with this metadata: key=value. Repeatable."""
    language: str | None = None
    """Language of the question.  [default: detected]"""
    generation: str | None = None
    """Generation of the index to query.  [default: the live one]"""
    prefer_named: Annotated[bool, Parameter(negative="--no-prefer-named")] = True
    """Prefer documents whose title the question names."""
    infer_filters: Annotated[bool, Parameter(negative="--no-infer-filters")] = True
    """Restrict the search to dates and tags that the question states about documents."""
    explain: bool = False
    """Show the ranks, the scores and how they were computed."""

    def to_request(self, text: str) -> dict[str, Any]:
        """Build the body of the HTTP request.

        Raises ConfigurationError for an unknown channel, for a profile or override without value,
        and for an override without section. The server checks their names and bounds.
        """
        from anabranch.config.loader import parse_assignments

        scalar_fields = {
            name: getattr(self, name)
            for name in (
                *("k", "mode", "language", "generation"),
                *("prefer_named", "infer_filters", "explain"),
            )
        }
        channel_filter = (
            {"channels": parse_channels(self.channels)} if self.channels is not None else {}
        )
        # Omitted, so that the default profile of the collection applies.
        profile = {"profile": self.profile} if self.profile is not None else {}
        return {
            "query": text,
            **profile,
            "profiles": parse_assignments(self.profiles, "--profiles", "type=name"),
            "overrides": _parse_overrides(self.override),
            "filters": {
                "collections": list(self.collection),
                "tags": list(self.tag),
                "metadata": parse_metadata(self.metadata),
            },
            **scalar_fields,
            **channel_filter,
        }


def _parse_overrides(assignments: Sequence[str]) -> dict[str, Any]:
    from anabranch.config.loader import parse_assignments

    overrides = parse_assignments(assignments, "--override")
    for name, value in overrides.items():
        if not isinstance(value, dict):
            raise ConfigurationError(
                f"--override {name}={value} names no section.",
                code="BAD_SETTING",
                remedy="Use --override section.key=value.",
            )
    return overrides


NO_OPTIONS = QueryOptions()


def query(
    *text: str,
    stream: bool = False,
    options: QueryOptions = NO_OPTIONS,
    common: RemoteOptions = REMOTE,
) -> int:
    """Ask a question and print the answer with its citations. Exits 4 if the answer is refused.

    Args:
        text: The question, quoted or as several words.
        stream: Print progress and the chat model's draft to stderr as they arrive; with --json, one
            object per line on stdout, the answer last.
    """
    body = options.to_request(join_question(text))
    answer = (
        asyncio.run(_stream_answer(body, common))
        if stream
        else post("/v1/query", body, common, stages=QUERY_STAGES)
    )
    if not common.is_json:
        answer_text = answer["message"] if answer["refused"] else answer["answer"]
        print_answer(answer_text, no_color=common.no_color)
        if answer.get("code") == "NO_SUCH_COLLECTION":
            print_stderr("  → List collections with `anabranch collections list`.")
        for citation in answer["citations"]:
            print(f"\n[{citation['n']}] {_format_location(citation)}")
            print(wrap_text(citation["quote"], "    "))
        for fact in answer.get("facts", ()):
            source = f", source: {to_single_line(fact['source'])}" if fact["source"] else ""
            print(
                f"\n[F{fact['n']}] stated by {fact['stated_by']} on {fact['stated_at'][:10]}, "
                f"certainty {fact['certainty']:.2f}{source}"
            )
            print(wrap_text(fact["statement"], "    "))
        if answer["citations"] or answer.get("facts"):
            print()
        print_confidence(answer)
        if options.explain:
            print_explanation(
                answer["trace"],
                answer["contexts"],
                _format_location,
                printed_notes=answer.get("assumptions") or [],
            )
            for fact in answer.get("graph_facts") or []:
                _print_wrapped(
                    f"{fact['kind']}: {_format_relation(fact)}, stated by {_format_location(fact)}",
                    "  ",
                )
    elif not stream:
        common.print_result(answer)
    return REFUSED if answer["refused"] else OK


def search(*text: str, options: QueryOptions = NO_OPTIONS, common: RemoteOptions = REMOTE) -> int:
    """Find passages without generating an answer. Exits 4 if there are none.

    Args:
        text: The search text, quoted or as several words.
    """
    response = post(
        "/v1/search", options.to_request(join_question(text)), common, stages=QUERY_STAGES
    )
    if not common.print_if_json(response):
        for result in response["results"]:
            channels = ", ".join(
                f"{name} {ranking['rank']}" for name, ranking in result["channels"].items()
            )
            print(
                f"{result['rank']:>2}. {_format_location(result)}   score {result['score']:.3f} "
                f"({channels})"
            )
            print(wrap_text(result["snippet"], "    "))
        if options.explain:
            print_explanation(response["trace"], response["results"], _format_location)
    return OK if response["results"] else REFUSED


def join_question(words: Sequence[str]) -> str:
    """Join the words. Raises ConfigurationError if there are none."""
    if not words:
        raise ConfigurationError(
            "No question was given.",
            code="NO_QUESTION",
            remedy='Add it to the command, in quotes: "How many days of leave?"',
        )
    return " ".join(words)


async def _stream_answer(body: dict[str, Any], common: RemoteOptions) -> dict[str, Any]:
    from anabranch.cli.server_connection import open_client

    async with open_client(common) as client:
        events = client.follow("/v1/query", body | {"stream": True})
        remedy = "Retry; check the server with `anabranch doctor`."
        return (await read_answer(events, common, remedy))[1]


def _format_location(item: Mapping[str, Any]) -> str:
    pages = f"p. {', '.join(map(str, item['pages']))}" if item["pages"] else ""
    source = item["source_uri"] or item["external_id"] or ""
    name = item["title"] or (Path(source).name if source else str(item["document_id"]))
    section = "" if item["section"] == name else (item["section"] or "").removeprefix(f"{name} > ")
    return to_single_line(" · ".join(part for part in (name, section, pages) if part))


OnStreamEvent = Callable[[str, dict[str, Any]], None]
"""Callback for each server-sent event, with its name and data."""


async def read_answer(
    events: AsyncGenerator[tuple[str, dict[str, Any]], None],
    common: RemoteOptions,
    remedy: str,
    final_names: Sequence[str] = ("answer",),
) -> tuple[str, dict[str, Any]]:
    """Print the events until one of the final names, and return that one.

    Raises TransientError with the remedy if the stream ends before.
    """
    on_event: OnStreamEvent = (
        print_event_line if common.is_json else make_progress_printer(quiet=common.quiet)
    )
    # Closes the stream before its client is closed.
    async with aclosing(events):
        async for name, data in events:
            on_event(name, data)
            if name in final_names:
                return name, data
    raise TransientError(
        "The server closed the stream before the answer.",
        code="SERVER_UNREACHABLE",
        remedy=remedy,
    )


def print_event_line(name: str, data: dict[str, Any]) -> None:
    print_json_line({"event": name, **data})


def make_progress_printer(*, quiet: bool) -> OnStreamEvent:
    """Return a callback that prints progress and drafts, which are not verified yet, to stderr."""
    drafts: list[int] = []

    def print_event(name: str, data: dict[str, Any]) -> None:
        if quiet:
            return
        if name == "step" and data["ms"] is not None:
            print_stderr(f"{data['name']} {data['ms']:.0f} ms")
        elif name == "delta":
            if data["draft"] not in drafts:
                drafts.append(data["draft"])
                print_stderr(
                    "draft, not verified yet:"
                    if len(drafts) == 1
                    else "\ndraft rejected; next draft:"
                )
            print(data["text"], end="", file=sys.stderr, flush=True)
        elif name == "answer" and drafts:
            print_stderr("\n")

    return print_event


def print_confidence(answer: Mapping[str, Any]) -> None:
    for hop in answer.get("path") or []:
        source, target = (
            end["title"] or end["external_id"] or end["document_id"] for end in (hop, hop["target"])
        )
        _print_wrapped(f"path: {source}: “{' '.join(hop['quote'].split())}” → {target}")
    for hop in answer.get("relation_path") or []:
        marks = "".join(f"[{n}]" for n in hop["citations"])
        _print_wrapped(f"relation: {_format_relation(hop)} {marks}")
    confidence = answer.get("confidence")
    if confidence and not answer["refused"]:
        _print_wrapped(f"confidence: {confidence['level']} ({'; '.join(confidence['reasons'])})")
    for name in ("assumptions", "limitations"):
        for sentence in answer.get(name) or []:
            # A refusal prints its message above.
            if sentence != answer.get("message"):
                _print_wrapped(f"{name.removesuffix('s')}: {translate_phrases(sentence)}")


def _format_relation(relation: Mapping[str, Any]) -> str:
    return f"{relation['subject']} -{relation['predicate']}-> {relation['object']}"


def print_explanation(
    trace: Mapping[str, Any],
    results: Sequence[Mapping[str, Any]],
    format_location: Callable[[Mapping[str, Any]], str],
    printed_notes: Sequence[str] = (),
) -> None:
    """Print plan, route, notes and threshold, and each passage's rank and score per channel."""
    plan, route = trace.get("plan"), trace["route"]
    print("\nexplanation")
    if plan:
        _print_wrapped(
            f"plan: {plan['intent']} question, by {plan['decided_by']}; keywords: "
            f"{', '.join(plan['keywords'])}; embedded: {plan['semantic_query']}",
            "  ",
        )
    first_mode = f" after {route['escalated_from']}" if route.get("escalated_from") else ""
    _print_wrapped(
        f"route: {route['mode']}{first_mode}, decided by {route['decided_by']}: {route['reason']}",
        "  ",
    )
    for name, channel in trace["channels"].items():
        served_by = f", served by {channel['served_by']}" if channel.get("served_by") else ""
        _print_wrapped(
            f"{name}: {channel['returned']} of at most {channel['k']} candidates, best "
            f"{_format_number(channel['best'])}{served_by}",
            "  ",
        )
    for name, reason in trace["channels_failed"].items():
        _print_wrapped(f"{name}: failed: {reason}", "  ")
    for note in trace.get("notes", ()):
        if note not in printed_notes:
            _print_wrapped(f"note: {translate_phrases(note)}", "  ")
    if trace.get("threshold") is not None:
        background = trace.get("rerank_background")
        _print_wrapped(
            f"refusal: best rerank score {_format_number(trace['max_rerank_score'])}, threshold "
            f"{_format_number(trace['threshold'])}"
            + (
                f", both counted from {_format_number(background)}, which any passage reaches; "
                "the scores below contain it"
                if background
                else ""
            ),
            "  ",
        )
    _print_usage(trace)
    _print_scores(results, format_location)


def _print_scores(
    results: Sequence[Mapping[str, Any]], format_location: Callable[[Mapping[str, Any]], str]
) -> None:
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


def _print_usage(trace: Mapping[str, Any]) -> None:
    """Print the calls of models with tokens and cost, and those that a cap stopped."""
    for usage in trace.get("usage", ()):
        amount = (
            "local"
            if usage["local"]
            else f"{usage['failed']} failed, {usage['input_tokens']:,} tokens in, "
            f"{usage['output_tokens']:,} out{' (bounds)' if usage['estimated'] else ''}"
        )
        noun = "call" if usage["calls"] == 1 else "calls"
        calls = f"{usage['task']} by {usage['model']}: {usage['calls']} {noun}"
        _print_wrapped(f"{calls}, {amount}", "  ")
    for stopped in trace.get("stopped", ()):
        _print_wrapped(f"{stopped['task']} not called: {stopped['reason']}", "  ")
    if trace.get("unpriced"):
        _print_wrapped(f"cost: unknown, no price of {', '.join(trace['unpriced'])}", "  ")
    elif trace.get("usage"):
        _print_wrapped(f"cost: {trace['cost']:.6g} {trace['currency']}", "  ")


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
