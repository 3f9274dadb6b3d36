"""`anabranch runs`: questions that were asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from cyclopts import App

from anabranch.cli.exits import FAILED, OK
from anabranch.cli.options import Remote
from anabranch.cli.output import one_line, print_table, say

app = App(name="runs", help="Questions that were asked: list, show, answer again, compare.", result_action="return_value")
DEFAULT = Remote()


@app.command(name="list")
def list_runs(*, limit: int = 50, after: str | None = None, common: Remote = DEFAULT) -> int:
    """List questions, the latest first.

    Parameters
    ----------
    limit
        At most so many.
    after
        `next` of the page before.
    """
    page = asyncio.run(_call("GET", "/v1/runs", common, params={"limit": limit, **({"after": after} if after else {})}))
    if common.json:
        common.show(page)
        return OK
    columns = ("run_id", "received_at", "kind", "generation", "refused", "query")
    print_table(columns, [[item[column] for column in columns] for item in page["items"]])
    if page["next"]:
        say(f"more: --after {page['next']}", quiet=common.quiet)
    return OK


@app.command
def show(run: UUID, /, *, common: Remote = DEFAULT) -> int:
    """A question, its answer, and what was recorded of it.

    Parameters
    ----------
    run
        Its id.
    """
    found = asyncio.run(_call("GET", f"/v1/runs/{run}", common))
    if common.json:
        common.show(found)
        return OK
    for name in ("run_id", "kind", "received_at", "answered_at", "generation"):
        print(f"{name:12} {found[name]}")
    print(f"{'question':12} {found['request']['query'] if found['request'] else '-' if found['response'] else 'erased'}")
    print(f"{'candidates':12} {len(found['candidates'])}")
    _print_response(found["response"] or {})
    return OK


@app.command
def rerun(run: UUID, /, *, common: Remote = DEFAULT) -> int:
    """Answer a past question again as it was, from its recorded candidates and numbers. Exits 1 if it does not come out the same.

    Parameters
    ----------
    run
        Its id.
    """
    found = asyncio.run(_call("POST", f"/v1/runs/{run}/rerun", common))
    if common.json:
        common.show(found)
    else:
        _print_response(found["response"])
        say("the same, byte for byte" if found["same"] else f"not the same: {', '.join(found['differences'])}", quiet=common.quiet)
        if found["missing"]:
            say(f"{len(found['missing'])} candidates that were not read have no text any more", quiet=common.quiet)
    return OK if found["same"] else FAILED


@app.command
def diff(run: UUID, other: UUID | None = None, /, *, common: Remote = DEFAULT) -> int:
    """Compare an answer with another one, or with the same question asked now.

    Parameters
    ----------
    run
        Its id.
    other
        A later run; without one the question is asked now, as a run of its own.
    """
    found = asyncio.run(_call("POST", f"/v1/runs/{run}/diff", common, json={"other": str(other) if other else None}))
    if common.json:
        common.show(found)
    else:
        for line in _told(found):
            print(line)
    return OK


def _told(found: dict[str, Any]) -> Iterable[str]:
    yield found["question"]
    for name in ("then", "now"):
        side = found[name]
        yield f"{name}: {side['answer'] or side['code'] or '(a search)'}\n      run {side['run_id']}, generation {side['generation']}, profile {side['profile']}"
    if found["same"]:
        yield "nothing differs"
    for reason in found["reasons"]:
        yield f"because: {reason['detail']}"
    for kind in ("gone", "new", "moved"):
        for one in found[kind]:
            yield f"{kind:5} {_rank(one['rank_then'])} → {_rank(one['rank_now'])}  {one_line(one['title'] or one['external_id'] or one['document_id'])}  {one_line(one['section'] or '')}"


def _rank(rank: int | None) -> str:
    return "-" if rank is None else str(rank)


def _print_response(response: dict[str, Any]) -> None:
    if "answer" in response:
        print(response["answer"] or response["message"])
    for citation in response.get("citations", []):
        print(f"[{citation['n']}] {one_line(citation['title'] or citation['external_id'] or '-')}: {citation['quote']}")
    for result in response.get("results", []):
        print(f"{result['rank']:>2}. {one_line(result['title'] or result['external_id'] or '-')}: {result['snippet']}")


async def _call(method: str, path: str, common: Remote, **options: Any) -> dict[str, Any]:
    from anabranch.cli.serving import api_client

    async with api_client(common) as client:
        return dict((await client.request(method, path, **options)).json())
