"""`anabranch runs`: queries in the background, and past ones."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from cyclopts import App, Parameter

from anabranch.cli.api_calls import call_api, format_time, get
from anabranch.cli.errors import FAILED, OK, REFUSED
from anabranch.cli.http_client import ApiClient
from anabranch.cli.names import RUNS, RunId, call_by_name, find_id, get_by_name
from anabranch.cli.options import FIRST_PAGE, PageOptions, RemoteOptions
from anabranch.cli.output import (
    print_answer,
    print_stderr,
    print_table,
    remove_emphasis,
    to_single_line,
)
from anabranch.cli.query import (
    NO_OPTIONS,
    QueryOptions,
    join_question,
    make_progress_printer,
    print_event_line,
)
from schemas.errors import ConfigurationError, TransientError
from schemas.run_records import RunOutcome

app = App(
    name="runs",
    help="Start and follow runs; list, show, rerun and compare past queries.",
    result_action="return_value",
)
DEFAULT = RemoteOptions()


@app.command(name="list")
def list_runs(
    *,
    search: str | None = None,
    outcome: RunOutcome | None = None,
    profile: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    page: PageOptions = FIRST_PAGE,
    common: RemoteOptions = DEFAULT,
) -> int:
    """List runs, the latest first.

    Parameters
    ----------
    search
        Only runs with this text in the question or the answer.
    outcome
        Only runs that ended so, or that are running.
    profile
        Only runs of this profile.
    since
        Only runs received at this time or later.
    until
        Only runs received before this time.
    """
    found = get(
        "/v1/runs",
        common,
        text=search,
        outcome=outcome,
        profile=profile,
        **{"from": format_time(since), "to": format_time(until)},
        **page.to_query(),
    )
    columns = ("run_id", "received_at", "kind", "generation", "profile", "refused", "query")
    return common.show_page(found, *columns, optional=("kind", "generation"))


@app.command
def start(
    *text: str,
    follow: Annotated[bool, Parameter(negative="")] = False,
    options: QueryOptions = NO_OPTIONS,
    common: RemoteOptions = DEFAULT,
) -> int:
    """Answer a question in the background, and print the id of the run.

    Parameters
    ----------
    text
        The question, quoted or as several words.
    follow
        Print the steps and the answer as `stream` does. Required if no server runs.
    """
    body = options.to_request(join_question(text))
    return call_api(common, lambda client: _start(body, follow, client, common))


async def _start(
    body: dict[str, Any], follow: bool, client: ApiClient, common: RemoteOptions
) -> int:
    if client.is_ephemeral and not follow:
        raise ConfigurationError(
            "No server is running that could continue the run.",
            code="NO_SERVER",
            remedy="Start one with `anabranch up`, or add --follow.",
        )
    run = await client.post("/v1/runs", body)
    if follow:
        print_stderr(f"run {run['run_id']}", quiet=common.quiet)
        return await _follow(client, run["run_id"], common)
    return common.show(run, lambda: print(run["run_id"]))


@app.command
def status(run: RunId, /, *, common: RemoteOptions = DEFAULT) -> int:
    """Show the state and the steps of a run."""
    status = get_by_name(RUNS, run, "/status", common)
    return common.show(status, lambda: _print_status(status))


@app.command
def cancel(run: RunId, /, *, common: RemoteOptions = DEFAULT) -> int:
    """Cancel a run and its model calls. A run that has ended stays as it is."""
    status = call_by_name(
        RUNS,
        run,
        common,
        lambda client, run_id: client.post(f"/v1/runs/{run_id}/cancel", {}),
        stages=("all",),
    )
    return common.show(status, lambda: _print_status(status))


@app.command
def stream(run: RunId, /, *, common: RemoteOptions = DEFAULT) -> int:
    """Print the steps of a run, from its start, and its answer. Exits 4 if the answer is refused,
    1 if the run stopped without one.
    """
    return call_by_name(RUNS, run, common, lambda client, run_id: _follow(client, run_id, common))


async def _follow(client: ApiClient, run: str, common: RemoteOptions) -> int:
    on_event = print_event_line if common.is_json else make_progress_printer(quiet=common.quiet)
    async for name, data in client.stream_events(f"/v1/runs/{run}/stream"):
        on_event(name, data)
        if name == "stopped":
            if not common.is_json:
                print_stderr(f"{data['state']}: {data['detail']}\n{data['remedy']}")
            return FAILED
        if name == "answer":
            if not common.is_json:
                _print_response(data, common)
            return REFUSED if data.get("refused") else OK
    raise TransientError(
        "The server closed the stream before the answer.",
        code="SERVER_UNREACHABLE",
        remedy=f"Repeat `anabranch runs stream {run}`.",
    )


def _print_status(run: dict[str, Any]) -> None:
    for name in ("run_id", "state", "started_at", "ended_at"):
        print(f"{name:12} {run[name] or '-'}")
    if run["error"]:
        print(f"{'error':12} {run['error']['code']}: {run['error']['detail']}")
    steps = [step for step in run["steps"] if step["ms"] is not None]
    print_table(("step", "ms"), [[step["step"], step["ms"]] for step in steps])


@app.command
def show(run: RunId, /, *, common: RemoteOptions = DEFAULT) -> int:
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
def rerun(run: RunId, /, *, common: RemoteOptions = DEFAULT) -> int:
    """Answer a past question again from its recorded candidates and scores. Exits 1 if the
    answer differs.
    """
    result = call_by_name(
        RUNS, run, common, lambda client, run_id: client.post(f"/v1/runs/{run_id}/rerun", {})
    )
    if common.is_json:
        common.print_result(result)
    else:
        _print_response(result["response"], common)
        print_stderr(
            "identical" if result["same"] else f"differs: {', '.join(result['differences'])}",
            quiet=common.quiet,
        )
        if result["missing"]:
            print_stderr(
                f"the text of {len(result['missing'])} unread candidates is no longer stored",
                quiet=common.quiet,
            )
    return OK if result["same"] else FAILED


@app.command
def diff(run: RunId, other: str | None = None, /, *, common: RemoteOptions = DEFAULT) -> int:
    """Compare a run with a later one, or with the same question asked now.

    Parameters
    ----------
    other
        Id of a later run, or its first digits. Without it, the question is asked now, as a new
        run.
    """

    async def compare(client: ApiClient, run_id: str) -> dict[str, Any]:
        other_id = await find_id(client, RUNS, other) if other else None
        return await client.post(f"/v1/runs/{run_id}/diff", {"other": other_id})

    result = call_by_name(RUNS, run, common, compare)
    return common.show(result, lambda: _print_diff(result))


def _print_diff(result: dict[str, Any]) -> None:
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
    for kind in ("removed", "added", "moved"):
        for change in result[kind]:
            name = change["title"] or change["external_id"] or change["document_id"]
            print(
                f"{kind:5} {_format_rank(change['rank_then'])} → "
                f"{_format_rank(change['rank_now'])}  {to_single_line(name)}  "
                f"{to_single_line(change['section'] or '')}"
            )


def _format_rank(rank: int | None) -> str:
    return "-" if rank is None else str(rank)


def _print_response(response: dict[str, Any], common: RemoteOptions) -> None:
    if "answer" in response:
        print_answer(response["answer"] or response["message"], no_color=common.no_color)
    for citation in response.get("citations", []):
        print(
            f"[{citation['n']}] "
            f"{to_single_line(citation['title'] or citation['external_id'] or '-')}: "
            f"{citation['quote']}"
        )
    for result in response.get("results", []):
        print(
            f"{result['rank']:>2}. "
            f"{to_single_line(result['title'] or result['external_id'] or '-')}: "
            f"{result['snippet']}"
        )
