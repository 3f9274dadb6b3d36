"""`anabranch query` and `anabranch search`."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from anabranch.cli.api_calls import post
from anabranch.cli.exit_codes import OK, REFUSED
from anabranch.cli.explanation import print_confidence, print_explanation
from anabranch.cli.options import QUERY_STAGES, RemoteOptions
from anabranch.cli.output import to_single_line

if TYPE_CHECKING:
    from anabranch.cli.answer_stream import OnStreamEvent

Flag = Parameter(negative="")


@Parameter(name="*")
@dataclass(frozen=True)
class QueryOptions:
    """Options of a query or search."""

    k: Annotated[int, Parameter(help="Number of passages to return.", validator=Number(gte=1))] = 10
    profile: Annotated[str, Parameter(help="Retrieval profile.")] = "default"
    mode: Annotated[
        Literal["auto", "vector", "graph", "hybrid"],
        Parameter(help="Retrieval mode; auto chooses by the question."),
    ] = "auto"
    channels: Annotated[
        str | None,
        Parameter(help="Only use these channels, comma-separated: lexical, semantic, graph."),
    ] = None
    collection: Annotated[
        tuple[str, ...], Parameter(negative="", help="Only search this collection. Repeatable.")
    ] = ()
    tag: Annotated[
        tuple[str, ...],
        Parameter(
            negative="", help="Only search documents with this tag. Repeatable: all must match."
        ),
    ] = ()
    language: Annotated[
        str | None, Parameter(help="Language of the question.  [default: detected]")
    ] = None
    generation: Annotated[
        str | None, Parameter(help="Generation of the index to query.  [default: the live one]")
    ] = None
    explain: Annotated[
        bool, Parameter(negative="", help="Show the ranks, the scores and how they were computed.")
    ] = False

    def to_request(self, text: str) -> dict[str, Any]:
        """Build the body of the HTTP request. Raises ConfigurationError for an unknown channel."""
        from anabranch.cli.channels import parse_channels

        scalar_fields = {
            name: getattr(self, name)
            for name in ("k", "profile", "mode", "language", "generation", "explain")
        }
        channel_filter = (
            {"channels": parse_channels(self.channels)} if self.channels is not None else {}
        )
        return {
            "query": text,
            "filters": {"collections": list(self.collection), "tags": list(self.tag)},
            **scalar_fields,
            **channel_filter,
        }


NO_OPTIONS = QueryOptions()
DEFAULT = RemoteOptions()


def query(
    *text: str,
    stream: Annotated[bool, Flag] = False,
    options: QueryOptions = NO_OPTIONS,
    common: RemoteOptions = DEFAULT,
) -> int:
    """Ask a question and print the answer with its citations. Exits 4 if the answer is refused.

    Parameters
    ----------
    text
        The question, quoted or as several words.
    stream
        Print progress and the chat model's draft to stderr as they arrive; with --json, one object per line on stdout, the answer last.
    """
    body = options.to_request(join_question(text))
    answer = (
        asyncio.run(_stream_answer(body, common))
        if stream
        else post("/v1/query", body, common, stages=QUERY_STAGES)
    )
    if not common.is_json:
        _print_answer(answer)
        print_confidence(answer)
        if options.explain:
            print_explanation(answer["trace"], answer["contexts"], _format_location)
    elif not stream:
        common.print_result(answer)
    return REFUSED if answer["refused"] else OK


def search(*text: str, options: QueryOptions = NO_OPTIONS, common: RemoteOptions = DEFAULT) -> int:
    """Find passages without generating an answer. Exits 4 if there are none.

    Parameters
    ----------
    text
        The search text, quoted or as several words.
    """
    response = post(
        "/v1/search", options.to_request(join_question(text)), common, stages=QUERY_STAGES
    )
    if common.is_json:
        common.print_result(response)
    else:
        _print_results(response["results"])
        if options.explain:
            print_explanation(response["trace"], response["results"], _format_location)
    return OK if response["results"] else REFUSED


def join_question(words: Sequence[str]) -> str:
    """Join the words. Raises ConfigurationError if there are none."""
    from schemas.errors import ConfigurationError

    if not words:
        raise ConfigurationError(
            "No question was given.",
            code="NO_QUESTION",
            remedy='Add it to the command: anabranch query "How many days of leave?"',
        )
    return " ".join(words)


async def _stream_answer(body: dict[str, Any], common: RemoteOptions) -> dict[str, Any]:
    from anabranch.cli.answer_stream import make_progress_printer, print_event_line, read_answer
    from anabranch.cli.server_connection import open_client

    on_event: OnStreamEvent = (
        print_event_line if common.is_json else make_progress_printer(quiet=common.quiet)
    )
    async with open_client(common) as client:
        return await read_answer(
            client.stream_events("/v1/query", body | {"stream": True}), on_event
        )


def _print_answer(answer: dict[str, Any]) -> None:
    print(answer["message"] if answer["refused"] else answer["answer"])
    for citation in answer["citations"]:
        print(f"\n[{citation['n']}] {_format_location(citation)}")
        print(textwrap.indent(citation["quote"], "    "))
    if answer["citations"]:
        print()


def _print_results(results: list[dict[str, Any]]) -> None:
    for result in results:
        channels = ", ".join(
            f"{name} {ranking['rank']}" for name, ranking in result["channels"].items()
        )
        print(
            f"{result['rank']:>2}. {_format_location(result)}   score {result['score']:.3f} ({channels})"
        )
        print(textwrap.indent(result["snippet"], "    "))


def _format_location(item: Mapping[str, Any]) -> str:
    pages = f"p. {', '.join(map(str, item['pages']))}" if item["pages"] else ""
    source = item["source_uri"] or item["external_id"] or ""
    name = item["title"] or (Path(source).name if source else str(item["document_id"]))
    section = "" if item["section"] == name else (item["section"] or "").removeprefix(f"{name} > ")
    return to_single_line(" · ".join(part for part in (name, section, pages) if part))
