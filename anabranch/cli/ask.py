"""`anabranch query` and `anabranch search`."""

from __future__ import annotations

import asyncio
import textwrap
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from anabranch.cli.exits import OK, REFUSED
from anabranch.cli.options import Remote
from anabranch.cli.output import print_json

Several = Parameter(negative="")


def query(
    text: str,
    /,
    *,
    k: int = 10,
    profile: str = "default",
    mode: Literal["auto", "vector", "graph", "hybrid"] = "auto",
    channels: str | None = None,
    collection: Annotated[tuple[str, ...], Several] = (),
    tag: Annotated[tuple[str, ...], Several] = (),
    language: str | None = None,
    generation: str | None = None,
    explain: Annotated[bool, Several] = False,
    common: Remote = Remote(),  # noqa: B008
) -> int:
    """Ask a question; the answer comes with its citations. Exits 4 when nothing suits.

    Parameters
    ----------
    text
        The question.
    k
        How many passages are considered at the end.
    profile
        Named way of answering.
    mode
        Which channels: by the question (auto), vector, graph or hybrid.
    channels
        Only these, separated by commas: lexical, semantic, graph.
    collection
        Only of these collections.
    tag
        Only with all of these tags.
    language
        Of the question; detected when not given.
    generation
        Of the index; the live one when not given.
    explain
        With every number that entered a score.
    """
    body = _body(text, k, profile, mode, channels, collection, tag, language, generation, explain)
    answer = asyncio.run(_post("/v1/query", body, common))
    if common.json:
        print_json(answer)
    else:
        _print_answer(answer)
    return REFUSED if answer["refused"] else OK


def search(
    text: str,
    /,
    *,
    k: int = 10,
    profile: str = "default",
    mode: Literal["auto", "vector", "graph", "hybrid"] = "auto",
    channels: str | None = None,
    collection: Annotated[tuple[str, ...], Several] = (),
    tag: Annotated[tuple[str, ...], Several] = (),
    language: str | None = None,
    generation: str | None = None,
    explain: Annotated[bool, Several] = False,
    common: Remote = Remote(),  # noqa: B008
) -> int:
    """Find passages, without an answer. Exits 4 when there are none.

    Parameters
    ----------
    text
        What to look for.
    k
        How many passages.
    profile
        Named way of answering.
    mode
        Which channels: by the question (auto), vector, graph or hybrid.
    channels
        Only these, separated by commas: lexical, semantic, graph.
    collection
        Only of these collections.
    tag
        Only with all of these tags.
    language
        Of the question; detected when not given.
    generation
        Of the index; the live one when not given.
    explain
        With every number that entered a score.
    """
    body = _body(text, k, profile, mode, channels, collection, tag, language, generation, explain)
    found = asyncio.run(_post("/v1/search", body, common))
    if common.json:
        print_json(found)
    else:
        _print_results(found["results"])
    return OK if found["results"] else REFUSED


def _body(
    text: str,
    k: int,
    profile: str,
    mode: str,
    channels: str | None,
    collections: tuple[str, ...],
    tags: tuple[str, ...],
    language: str | None,
    generation: str | None,
    explain: bool,
) -> dict[str, Any]:
    body: dict[str, Any] = {"query": text, "k": k, "profile": profile, "mode": mode, "explain": explain, "language": language, "generation": generation}
    body["filters"] = {"collections": list(collections), "tags": list(tags)}
    return body | ({"channels": channels.split(",")} if channels else {})


async def _post(path: str, body: dict[str, Any], common: Remote) -> dict[str, Any]:
    from anabranch.cli.serving import api_client

    async with api_client(common) as client:
        return await client.post(path, body)


def _print_answer(answer: dict[str, Any]) -> None:
    print(answer["message"] if answer["refused"] else answer["answer"])
    for citation in answer["citations"]:
        print(f"\n[{citation['n']}] {_place(citation)}")
        print(textwrap.indent(citation["quote"], "    "))


def _print_results(results: list[dict[str, Any]]) -> None:
    for result in results:
        channels = ", ".join(f"{name} {place['rank']}" for name, place in result["channels"].items())
        print(f"{result['rank']:>2}. {_place(result)}   score {result['score']:.3f} ({channels})")
        print(textwrap.indent(result["snippet"], "    "))


def _place(item: dict[str, Any]) -> str:
    pages = f"p. {', '.join(map(str, item['pages']))}" if item["pages"] else ""
    source = item["source_uri"] or item["external_id"] or ""
    name = item["title"] or (Path(source).name if source else str(item["document_id"]))
    return " · ".join(part for part in (name, item["section"], pages) if part)
