"""`anabranch runs`: queries in the background, and past ones; `anabranch lineage`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import Parameter

from anabranch.cli.api_calls import call_api, format_time, get
from anabranch.cli.errors import FAILED, OK, REFUSED
from anabranch.cli.names import (
    DOCUMENTS,
    RUNS,
    DocumentName,
    RunId,
    call_by_name,
    find_id,
    get_by_name,
    post_by_name,
)
from anabranch.cli.options import (
    FIRST_SORTED_PAGE,
    REMOTE,
    RemoteOptions,
    SortedPageOptions,
    make_group,
)
from anabranch.cli.output import (
    print_answer,
    print_stderr,
    print_table,
    remove_emphasis,
    to_single_line,
)
from anabranch.cli.query import NO_OPTIONS, QueryOptions, join_question, read_answer
from schemas.errors import InvalidRequest
from schemas.run_records import RunOutcome

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient

app = make_group("runs")


@Parameter(name="*")
@dataclass(frozen=True)
class FilterOptions:
    """Conditions that runs must meet."""

    outcome: RunOutcome | None = None
    """Only runs that ended so, or that are running."""
    profile: str | None = None
    """Only runs of this profile."""
    since: datetime | None = None
    """Only runs received at this time or later."""
    until: datetime | None = None
    """Only runs received before this time."""

    def to_query(self) -> dict[str, Any]:
        period = {"from": format_time(self.since), "to": format_time(self.until)}
        return {"outcome": self.outcome, "profile": self.profile, **period}


NO_FILTERS = FilterOptions()


@app.command(name="list")
def list_runs(
    *,
    search: str | None = None,
    filters: FilterOptions = NO_FILTERS,
    page: SortedPageOptions = FIRST_SORTED_PAGE,
    common: RemoteOptions = REMOTE,
) -> int:
    """List runs, the latest first.

    Args:
        search: Only runs with this text in the question or the answer.
    """
    found = get("/v1/runs", common, text=search, **filters.to_query(), **page.to_query())
    optional = ("kind", "generation", "refused", "profile", "received_at")
    columns = ("run_id", "received_at", "kind", "generation", "profile", "refused", "query")
    return common.show_page(found, *columns, optional=optional)


@app.command
def export(
    *,
    format: Literal["csv", "jsonl"] = "csv",  # noqa: A002
    filters: FilterOptions = NO_FILTERS,
    common: RemoteOptions = REMOTE,
) -> int:
    """Print the measurements of runs, the latest first: sources, scores, size of the graph, model
    calls, tokens and feedback.

    Args:
        format: Of a line per run. --json and --output ndjson print jsonl.
    """
    parameters = filters.to_query() | {"format": "jsonl" if common.is_json else format}

    async def print_export(client: ApiClient) -> int:
        async for text in client.stream_text("/v1/runs/export", **parameters):
            sys.stdout.write(text)
        return OK

    return call_api(common, print_export)


@app.command
def start(
    *text: str,
    follow: bool = False,
    options: QueryOptions = NO_OPTIONS,
    common: RemoteOptions = REMOTE,
) -> int:
    """Answer a question in the background, and print the id of the run.

    Args:
        text: The question, quoted or as several words.
        follow: Print the steps and the answer as `stream` does. Required if no server runs.
    """
    from anabranch.cli.server_connection import open_client, open_lasting_client

    body = options.to_request(join_question(text))

    async def start_run() -> int:
        async with (open_client if follow else open_lasting_client)(common) as client:
            run = await client.post("/v1/runs", body)
            if follow:
                common.print_note(f"run {run['run_id']}")
                return await _follow(client, run["run_id"], common)
            return common.show(run, lambda: print(run["run_id"]))

    return asyncio.run(start_run())


@app.command
def status(run: RunId, /, *, common: RemoteOptions = REMOTE) -> int:
    """Show the state and the steps of a run."""
    status = get_by_name(RUNS, run, "/status", common)
    return common.show(status, lambda: _print_status(status))


@app.command
def cancel(run: RunId, /, *, common: RemoteOptions = REMOTE) -> int:
    """Cancel a run and its model calls. A run that has ended stays as it is."""
    status = post_by_name(RUNS, run, "/cancel", {}, common, stages=("all",))
    return common.show(status, lambda: _print_status(status))


@app.command
def stream(run: RunId, /, *, common: RemoteOptions = REMOTE) -> int:
    """Print the steps of a run, from its start, and its answer. Exits 4 if the answer is refused,
    1 if the run stopped without one.
    """
    return call_by_name(RUNS, run, common, lambda client, run_id: _follow(client, run_id, common))


async def _follow(client: ApiClient, run: str, common: RemoteOptions) -> int:
    events = client.follow(f"/v1/runs/{run}/stream")
    remedy = f"Repeat `anabranch runs stream {run}`."
    name, data = await read_answer(events, common, remedy, ("answer", "stopped"))
    if name == "stopped":
        if not common.is_json:
            print_stderr(f"{data['state']}: {data['detail']}\n{data['remedy']}")
        return FAILED
    if not common.is_json:
        _print_response(data, common)
    return REFUSED if data.get("refused") else OK


def _print_status(run: dict[str, Any]) -> None:
    for name in ("run_id", "state", "started_at", "ended_at"):
        print(f"{name:12} {run[name] or '-'}")
    if run["error"]:
        print(f"{'error':12} {run['error']['code']}: {run['error']['detail']}")
    steps = [step for step in run["steps"] if step["ms"] is not None]
    if steps:  # of a run in the background
        print_table(("step", "ms"), [[step["step"], step["ms"]] for step in steps])


@app.command
def show(run: RunId, /, *, common: RemoteOptions = REMOTE) -> int:
    """Show the question, the answer and the record of a run."""
    details = get_by_name(RUNS, run, "", common)
    return common.show(details, lambda: _print_run(details, common))


def _print_run(details: dict[str, Any], common: RemoteOptions) -> None:
    for name in ("run_id", "kind", "received_at", "answered_at", "generation"):
        print(f"{name:12} {details[name]}")
    missing_question = "-" if details["response"] else "erased"
    question = details["request"]["query"] if details["request"] else missing_question
    print(f"{'question':12} {question}")
    print(f"{'candidates':12} {len(details['candidates'])}")
    _print_response(details["response"] or {}, common)


@app.command
def rerun(run: RunId, /, *, common: RemoteOptions = REMOTE) -> int:
    """Answer a past question again from its recorded candidates and scores. Exits 1 if the
    answer differs.
    """
    result = post_by_name(RUNS, run, "/rerun", {}, common)
    if not common.print_if_json(result):
        _print_response(result["response"], common)
        common.print_note(
            "identical" if result["same"] else f"differs: {', '.join(result['differences'])}"
        )
        if result["missing"]:
            common.print_note(
                f"the text of {len(result['missing'])} unread candidates is no longer stored"
            )
    return OK if result["same"] else FAILED


@app.command
def counterfactual(run: RunId, /, *, common: RemoteOptions = REMOTE) -> int:
    """Show what an answer rests on: the answer from its recorded passages with each cited document
    left out.
    """
    result = get_by_name(RUNS, run, "/counterfactual", common)
    return common.show(result, lambda: _print_counterfactual(result))


def _print_counterfactual(result: dict[str, Any]) -> None:
    print(to_single_line(result["summary"]))
    for document in result["documents"]:
        marks = "".join(f"[{n}]" for n in document["citations"])
        print(f"\nwithout {marks} {_format_name(document)}: {document['outcome']}")
        if document["answer"] and document["outcome"] != "unchanged":
            print(f"    {remove_emphasis(document['answer'])}")


@app.command
def summarize(run: RunId, /, *, common: RemoteOptions = REMOTE) -> int:
    """Summarize the relations and claims around an answer in cited bullets, by the chat model."""
    result = call_by_name(
        RUNS,
        run,
        common,
        lambda client, run_id: client.post("/v1/graph/summary", {"run_id": run_id}),
    )
    return common.show(result, lambda: _print_summary(result, common))


def _print_summary(result: dict[str, Any], common: RemoteOptions) -> None:
    for bullet in result["bullets"]:
        print(f"- {bullet['text']} {''.join(f'[{n}]' for n in bullet['citations'])}")
    for fact in result["citations"]:
        print(f"[{fact['n']}] {_format_name(fact)}: {fact['quote']}")
    for warning in result["warnings"]:
        common.print_note(warning)


@app.command
def diff(run: RunId, other: str | None = None, /, *, common: RemoteOptions = REMOTE) -> int:
    """Compare a run with a later one, or with the same question asked now.

    Args:
        other: Id of a later run, or its first digits. Without it, the question is asked now, as a
            new run.
    """

    result = _compare(run, other, "diff", common)
    return common.show(result, lambda: _print_diff(result, common))


@app.command
def bisect(
    run: RunId,
    other: str | None = None,
    /,
    *,
    start: str | None = None,
    end: str | None = None,
    common: RemoteOptions = REMOTE,
) -> int:
    """Find the change that flipped an answer between a run and a later one, or until now.

    Args:
        other: Id of a later run, or its first digits. Without it, the question is asked now, as a
            new run.
        start: Position of the log, such as `accepted[0]@75`: only later revisions are searched.
        end: Position of the log: only revisions up to it are searched.
    """
    result = _compare(run, other, "bisect", common, start=start, end=end)
    return common.show(result, lambda: _print_bisection(result))


def _compare(
    run: str, other: str | None, action: str, common: RemoteOptions, **positions: str | None
) -> dict[str, Any]:
    async def compare(client: ApiClient, run_id: str) -> dict[str, Any]:
        other_id = await find_id(client, RUNS, other) if other else None
        return await client.post(f"/v1/runs/{run_id}/{action}", {"other": other_id, **positions})

    return call_by_name(RUNS, run, common, compare)


def _print_bisection(result: dict[str, Any]) -> None:
    print(f"{to_single_line(result['question'])}\n{to_single_line(result['reason']['detail'])}")
    document = result["document"]
    if document and document["topic"]:
        print(f"received at {document['topic']}[{document['partition']}]@{document['offset']}")
    for name in ("before", "after"):
        print(f"{name:7} {remove_emphasis(result[name] or 'refused')}")
    print(f"changes: {result['changes']}, reruns: {result['reruns']}")


def _print_diff(result: dict[str, Any], common: RemoteOptions) -> None:
    print(result["question"])
    for name in ("then", "now"):
        side = result[name]
        print(
            f"{name}: {remove_emphasis(side['answer'] or side['code'] or '(a search)')}\n"
            f"      run {side['run_id']}, generation {side['generation']}, "
            f"profile {side['profile']}"
        )
    if result["same"]:
        print("no differences")
    for reason in result["reasons"]:
        print(f"because: {reason['detail']}")
    changes = [
        (
            *(kind, change["rank_then"], change["rank_now"]),
            change["title"] or change["external_id"] or change["document_id"],
            change["section"],
        )
        for kind in ("removed", "added", "moved")
        for change in result[kind]
    ]
    if changes:
        common.print_table(("passage", "then", "now", "document", "section"), changes)


def _print_response(response: dict[str, Any], common: RemoteOptions) -> None:
    if "answer" in response:
        print_answer(response["answer"] or response["message"], no_color=common.no_color)
    for citation in response.get("citations", []):
        print(f"[{citation['n']}] {_format_name(citation)}: {citation['quote']}")
    for result in response.get("results", []):
        print(f"{result['rank']:>2}. {_format_name(result)}: {result['snippet']}")


def _format_name(item: dict[str, Any]) -> str:
    return to_single_line(item["title"] or item["external_id"] or item.get("document_id") or "-")


VERDICT_LABELS = {True: "ok  ", False: "FAIL", None: " -  "}


def lineage(
    run: str, /, *, citation: int | None = None, prov: bool = False, common: RemoteOptions = REMOTE
) -> int:
    """Trace an answer's citations back to the uploaded bytes. Exits 1 if verification fails.

    Args:
        run: Run id or its first digits; append `#2` for the second sentence of the answer only.
        citation: Only trace the citation with this number.
        prov: Print W3C PROV-JSON.
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
    document: DocumentName, /, *, prov: bool = False, common: RemoteOptions = REMOTE
) -> int:
    """Trace a document back to its bytes and verify every event. Exits 1 if verification fails.

    Args:
        prov: Print W3C PROV-JSON.
    """
    result = get_by_name(DOCUMENTS, document, "/lineage", common, format="prov" if prov else None)
    return print_lineage(result, prov, common, _format_document)


def parse_run_and_sentence(text: str) -> tuple[str, int | None]:
    """Parse `RUN` or `RUN#2`. Raises InvalidRequest."""
    run_id, mark, number = text.partition("#")
    if not run_id or (mark and not number.isdecimal()):
        raise InvalidRequest(
            f"Invalid run {text!r}.",
            remedy="Use a run id, or RUN#2 for its second sentence. List ids with `anabranch runs "
            "list`.",
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
    if not common.print_if_json(result):
        for line in format_lines(result):
            print(line)
    for fault in result["broken"]:
        print_stderr(f"verification failed: {fault}", quiet=common.is_json)
    return OK if result["verified"] else FAILED


def _format_run(result: dict[str, Any]) -> Iterable[str]:
    yield f"{result['question']}\n{remove_emphasis(result['answer'] or 'refused')}"
    for citation in result["citations"]:
        pages = f" · p. {', '.join(map(str, citation['pages']))}" if citation["pages"] else ""
        name = _format_name(citation)
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
        f"{_format_name(result)} · revision {result['revision']} · "
        f"sha256 {result['content_sha256']}"
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
