"""`anabranch lineage`: trace an answer or a document back to the uploaded bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Annotated, Any

from cyclopts import Parameter

from anabranch.cli.errors import FAILED, OK
from anabranch.cli.names import DOCUMENTS, RUNS, DocumentName, get_by_name
from anabranch.cli.options import RemoteOptions
from anabranch.cli.output import print_stderr, remove_emphasis, to_single_line
from schemas.errors import InvalidRequest

Flag = Parameter(negative="")
VERDICT_LABELS = {True: "ok  ", False: "FAIL", None: " -  "}


def lineage(
    run: str,
    /,
    *,
    citation: int | None = None,
    prov: Annotated[bool, Flag] = False,
    common: RemoteOptions = RemoteOptions(),  # noqa: B008
) -> int:
    """Trace an answer's citations back to the uploaded bytes. Exits 1 if verification fails.

    Parameters
    ----------
    run
        Run id or its first digits; append `#2` for the second sentence of the answer only.
    citation
        Only trace the citation with this number.
    prov
        Print W3C PROV-JSON.
    """
    run_id, sentence = parse_run_and_sentence(run)
    result = get_by_name(
        RUNS,
        run_id,
        "/lineage",
        common,
        sentence=sentence,
        citation=citation,
        format="prov" if prov else None,
    )
    return print_lineage(result, prov, common, _format_run)


def document_lineage(
    document: DocumentName,
    /,
    *,
    prov: Annotated[bool, Flag] = False,
    common: RemoteOptions = RemoteOptions(),  # noqa: B008
) -> int:
    """Trace a document back to its bytes and verify every event. Exits 1 if verification fails.

    Parameters
    ----------
    prov
        Print W3C PROV-JSON.
    """
    result = get_by_name(DOCUMENTS, document, "/lineage", common, format="prov" if prov else None)
    return print_lineage(result, prov, common, _format_document)


def parse_run_and_sentence(text: str) -> tuple[str, int | None]:
    """Parse `RUN` or `RUN#2`. Raises InvalidRequest."""
    run_id, mark, number = text.partition("#")
    if not run_id or (mark and not number.isdecimal()):
        raise InvalidRequest(
            f"Invalid run {text!r}.",
            remedy=(
                "Use a run id, or RUN#2 for its second sentence. List ids with `anabranch runs "
                "list`."
            ),
        )
    return run_id, int(number) if mark else None


def print_lineage(
    result: dict[str, Any],
    prov: bool,
    common: RemoteOptions,
    format_lines: Callable[[dict[str, Any]], Iterable[str]],
) -> int:
    if prov:
        print(json.dumps(result, ensure_ascii=False, indent=1))
        return (
            FAILED
            if any(
                entity.get("anabranch:verified") == "false" for entity in result["entity"].values()
            )
            else OK
        )
    if common.is_json:
        common.print_result(result)
    else:
        for line in format_lines(result):
            print(line)
    for fault in result["broken"]:
        print_stderr(f"verification failed: {fault}", quiet=common.is_json)
    return OK if result["verified"] else FAILED


def _format_run(result: dict[str, Any]) -> Iterable[str]:
    yield f"{result['question']}\n{remove_emphasis(result['answer'] or 'refused')}"
    for citation in result["citations"]:
        pages = f" · p. {', '.join(map(str, citation['pages']))}" if citation["pages"] else ""
        name = to_single_line(
            citation["title"] or citation["external_id"] or citation["document_id"]
        )
        yield f"\n[{citation['n']}] {name} · revision {citation['revision']}{pages}"
        yield f"    “{citation['quote']}”  [{citation['char_start']}, {citation['char_end']})"
        yield from (
            f"    box {span['box']} on page {span['page']}"
            for span in citation["spans"]
            if span.get("box")
        )
        yield from map(_format_hop, citation["hops"])


def _format_document(result: dict[str, Any]) -> Iterable[str]:
    yield (
        f"{to_single_line(result['title'] or result['external_id'] or result['document_id'])} · "
        f"revision {result['revision']} · sha256 {result['content_sha256']}"
    )
    yield from map(_format_hop, result["hops"])


def _format_hop(hop: dict[str, Any]) -> str:
    event = hop["event"]
    event_line = (
        f"\n          {event['type']} by {event['author']}"
        + (f", fingerprint {event['how']}" if event["how"] else "")
        if event
        else ""
    )
    return (
        f"    {VERDICT_LABELS[hop['verified']]}  {hop['name']:12} {hop['place']}: "
        f"{hop['detail']}{event_line}"
    )
