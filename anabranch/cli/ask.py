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

from anabranch.cli.exits import OK, REFUSED
from anabranch.cli.explanation import print_explanation, print_standing
from anabranch.cli.options import Remote
from anabranch.cli.output import one_line

if TYPE_CHECKING:
    from anabranch.cli.answer_stream import Watch

Flag = Parameter(negative="")


@Parameter(name="*")
@dataclass(frozen=True)
class Wanted:
    """What may be said beside the question."""

    k: Annotated[int, Parameter(help="How many passages are considered.", validator=Number(gte=1))] = 10
    profile: Annotated[str, Parameter(help="Named way of answering.")] = "default"
    mode: Annotated[Literal["auto", "vector", "graph", "hybrid"], Parameter(help="Which channels: by the question (auto), vector, graph or hybrid.")] = "auto"
    channels: Annotated[str | None, Parameter(help="Only these, separated by commas: lexical, semantic, graph.")] = None
    collection: Annotated[tuple[str, ...], Parameter(negative="", help="Only of these collections.")] = ()
    tag: Annotated[tuple[str, ...], Parameter(negative="", help="Only with all of these tags.")] = ()
    language: Annotated[str | None, Parameter(help="Of the question; detected when not given.")] = None
    generation: Annotated[str | None, Parameter(help="Of the index; the live one when not given.")] = None
    explain: Annotated[bool, Parameter(negative="", help="Add the ranks, the scores and every number that entered them.")] = False

    def body(self, text: str) -> dict[str, Any]:
        """Of the HTTP call. Raises ConfigurationError for a name that is no channel."""
        from anabranch.cli.channels import channels_named

        plain = {name: getattr(self, name) for name in ("k", "profile", "mode", "language", "generation", "explain")}
        only = {"channels": channels_named(self.channels)} if self.channels is not None else {}
        return {"query": text, "filters": {"collections": list(self.collection), "tags": list(self.tag)}, **plain, **only}


NOTHING_SAID = Wanted()
HERE = Remote()


def query(*text: str, stream: Annotated[bool, Flag] = False, wanted: Wanted = NOTHING_SAID, common: Remote = HERE) -> int:
    """Ask a question; the answer comes with its citations. Exits 4 when nothing suits.

    Parameters
    ----------
    text
        The question, in quotation marks or as several words.
    stream
        Show on stderr what is being done, and the words of a chat model as they come; with --json one JSON object a line on stdout, the answer last.
    """
    body = wanted.body(question(text))
    answer = asyncio.run(_streamed(body, common) if stream else _post("/v1/query", body, common))
    if not common.json:
        _print_answer(answer)
        print_standing(answer)
        if wanted.explain:
            print_explanation(answer["trace"], answer["contexts"], _place)
    elif not stream:
        common.show(answer)
    return REFUSED if answer["refused"] else OK


def search(*text: str, wanted: Wanted = NOTHING_SAID, common: Remote = HERE) -> int:
    """Find passages, without an answer. Exits 4 when there are none.

    Parameters
    ----------
    text
        What to look for, in quotation marks or as several words.
    """
    found = asyncio.run(_post("/v1/search", wanted.body(question(text)), common))
    if common.json:
        common.show(found)
    else:
        _print_results(found["results"])
        if wanted.explain:
            print_explanation(found["trace"], found["results"], _place)
    return OK if found["results"] else REFUSED


def question(words: Sequence[str]) -> str:
    """Raises ConfigurationError without a word."""
    from schemas.errors import ConfigurationError

    if not words:
        raise ConfigurationError("There is no question.", code="NO_QUESTION", remedy='Write it behind the command: anabranch query "How many days of leave?"')
    return " ".join(words)


async def _post(path: str, body: dict[str, Any], common: Remote) -> dict[str, Any]:
    from anabranch.cli.serving import api_client

    async with api_client(common) as client:
        return await client.post(path, body)


async def _streamed(body: dict[str, Any], common: Remote) -> dict[str, Any]:
    from anabranch.cli.answer_stream import answer_of, as_lines, as_talk
    from anabranch.cli.serving import api_client

    watch: Watch = as_lines if common.json else as_talk(quiet=common.quiet)
    async with api_client(common) as client:
        return await answer_of(client.events("/v1/query", body | {"stream": True}), watch)


def _print_answer(answer: dict[str, Any]) -> None:
    print(answer["message"] if answer["refused"] else answer["answer"])
    for citation in answer["citations"]:
        print(f"\n[{citation['n']}] {_place(citation)}")
        print(textwrap.indent(citation["quote"], "    "))
    if answer["citations"]:
        print()


def _print_results(results: list[dict[str, Any]]) -> None:
    for result in results:
        channels = ", ".join(f"{name} {place['rank']}" for name, place in result["channels"].items())
        print(f"{result['rank']:>2}. {_place(result)}   score {result['score']:.3f} ({channels})")
        print(textwrap.indent(result["snippet"], "    "))


def _place(item: Mapping[str, Any]) -> str:
    pages = f"p. {', '.join(map(str, item['pages']))}" if item["pages"] else ""
    source = item["source_uri"] or item["external_id"] or ""
    name = item["title"] or (Path(source).name if source else str(item["document_id"]))
    section = "" if item["section"] == name else (item["section"] or "").removeprefix(f"{name} > ")
    return one_line(" · ".join(part for part in (name, section, pages) if part))
