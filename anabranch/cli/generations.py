"""`anabranch generations`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from anabranch.cli.calls import told_moment
from anabranch.cli.consent import agreed
from anabranch.cli.exits import FAILED, GATE, OK
from anabranch.cli.options import Remote
from anabranch.cli.output import print_fields, print_table, say
from schemas.errors import InvalidRequest

if TYPE_CHECKING:
    from anabranch.client import ApiClient

app = App(name="generations", help="Indexes beside each other: compare, switch, roll back, drop.", result_action="return_value")
Flag = Parameter(negative="")
DEFAULT = Remote()
PATIENCE_S = 3600.0
"""A comparison takes as long as its questions do."""
STAGES = ("control", "runs", "judgements")
"""Of a server of the command's own: decisions, questions and judgements are in the tables."""


@Parameter(name="*")
@dataclass(frozen=True)
class Asked:
    """What two generations are asked."""

    golden: Annotated[Path | None, Parameter(help="File with one question a line, with its judgements.")] = None
    since: Annotated[datetime | None, Parameter(help="Of real questions and feedback; UTC where no zone is given.")] = None
    until: Annotated[datetime | None, Parameter(help="Of real questions and feedback; UTC where no zone is given.")] = None
    queries: Annotated[int, Parameter(help="Real questions at most, the latest first.")] = 200
    answers: Annotated[bool, Parameter(negative="", help="Let the chat model answer, too; that costs its tokens.")] = False
    profile: Annotated[str | None, Parameter(help="In place of the one that was asked with.")] = None

    def body(self) -> dict[str, Any]:
        """Of the HTTP call. Raises InvalidRequest for a file that holds no questions."""
        from evaluation.comparing import read_golden

        questions = [question.model_dump(mode="json") for question in read_golden(self.golden)] if self.golden is not None else []
        plain = {"queries": self.queries, "answers": self.answers, "profile": self.profile}
        return {"golden": questions, "since": told_moment(self.since), "until": told_moment(self.until), **plain}


AS_USUAL = Asked()


@app.command(name="list")
def list_generations(*, common: Remote = DEFAULT) -> int:
    """Those that are not dropped, with what each shows and takes."""
    page = _call(common, lambda client: client.get("/v1/generations"))
    if common.json:
        common.show(page)
        return OK
    columns = ("name", "state", "purpose", "base", "documents", "chunks", "bytes", "built_at")
    print_table(columns, [[item[column] for column in columns] for item in page["items"]])
    return OK


@app.command
def show(name: str, /, *, common: Remote = DEFAULT) -> int:
    """One, with its configuration.

    Parameters
    ----------
    name
        Such as g2.
    """
    found = _one(name, common)
    if common.json:
        common.show(found)
        return OK
    print_fields({name: value for name, value in found.items() if name not in ("config", "how", "topics")} | found["config"])
    return OK


@app.command
def diff(a: str, b: str, /, *, common: Remote = DEFAULT) -> int:
    """What two generations are made with, where they differ.

    Parameters
    ----------
    a
        Such as g1.
    b
        Such as g2.
    """
    found = _differences(_one(a, common)["config"], _one(b, common)["config"])
    if common.json:
        common.show({"generations": {"A": a, "B": b}, "differences": {name: {"A": one, "B": other} for name, one, other in found}})
    elif found:
        print_table(("setting", a, b), found)
    else:
        say(f"{a} and {b} are made with the same settings", quiet=common.quiet)
    return OK


def _one(name: str, common: Remote) -> dict[str, Any]:
    return _call(common, lambda client: client.get(f"/v1/generations/{name}"))


def _differences(first: dict[str, Any], second: dict[str, Any], place: str = "") -> list[tuple[str, Any, Any]]:
    """Setting, and what it is in each; None where one has no such setting."""
    found: list[tuple[str, Any, Any]] = []
    for name in dict.fromkeys([*first, *second]):
        one, other = first.get(name), second.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            found += _differences(one, other, f"{place}{name}.")
        elif one != other:
            found.append((f"{place}{name}", one, other))
    return found


@app.command
def compare(a: str, b: str, /, *, asked: Asked = AS_USUAL, common: Remote = DEFAULT) -> int:
    """Ask two generations the same questions: golden ones, and real ones of a period.

    Parameters
    ----------
    a
        The generation that is compared with, such as g1.
    b
        The generation that is compared, such as g2.
    """
    wanted = asked.body()
    report = _call(common, lambda client: client.post("/v1/generations/compare", {"a": a, "b": b, **wanted}))
    if common.json:
        common.show(report)
    else:
        _print_report(report)
    return OK


@app.command
def promote(name: str, /, *, gate: Path | None = None, asked: Asked = AS_USUAL, common: Remote = DEFAULT) -> int:
    """Let a generation answer from now on, if it has every document. Exits 6 where the gate does not hold.

    Parameters
    ----------
    name
        Such as g2.
    gate
        YAML file with what a comparison with the live generation must show; without, nothing is compared.
    """
    if gate is None and asked != AS_USUAL:
        remedy = "Add --gate, or compare with `anabranch generations compare` before you decide."
        raise InvalidRequest("without --gate nothing is compared, so nothing is asked", remedy=remedy)
    told = _call(common, partial(_promoted, name, {"gate": _gate(gate), "comparison": asked.body()}))
    return _tell_promotion(told, common)


@app.command
def rollback(*, common: Remote = DEFAULT) -> int:
    """Let the generation answer again that answered before."""
    return _tell_promotion(_call(common, lambda client: client.post("/v1/generations/rollback", {})), common)


@app.command
def drop(name: str, /, *, yes: Annotated[bool, Flag] = False, common: Remote = DEFAULT) -> int:
    """Give a generation up for good, with its tables and the topics that no other one uses.

    Parameters
    ----------
    name
        Such as g1.
    yes
        Do not ask.
    """

    async def work(client: ApiClient) -> dict[str, Any]:
        found = await client.get(f"/v1/generations/{name}")
        if found["state"] == "live":
            return await client.delete(f"/v1/generations/{name}")  # the server refuses, and says why
        return await client.delete(f"/v1/generations/{name}") if yes or agreed(_price(found)) else {}

    told = _call(common, work)
    if common.json and told:
        common.show(told)
    elif told:
        say(_dropped(told), quiet=common.quiet)
    return OK if told else FAILED


def _call(common: Remote, work: Callable[[ApiClient], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    from httpx2 import Timeout

    from anabranch.cli.serving import api_client

    async def run() -> dict[str, Any]:
        async with api_client(common, stages=STAGES) as client:
            client.http.timeout = Timeout(PATIENCE_S, connect=10)
            return await work(client)

    return asyncio.run(run())


async def _promoted(name: str, body: dict[str, Any], client: ApiClient) -> dict[str, Any]:
    return await client.post(f"/v1/generations/{name}/promote", body)


def _gate(path: Path | None) -> dict[str, Any] | None:
    from evaluation.gate import read_gate

    return None if path is None else read_gate(path).model_dump(mode="json")


def _tell_promotion(told: dict[str, Any], common: Remote) -> int:
    if common.json:
        common.show(told)
    elif told["promoted"]:
        previous = f"; {told['previous']} stands by" if told["previous"] else ""
        say(f"{told['generation']} answers{previous}", quiet=common.quiet)
    if not told["promoted"]:
        for reason in told["reasons"]:
            say(f"the gate does not hold: {reason}")
    return OK if told["promoted"] else GATE


def _print_report(report: dict[str, Any]) -> None:
    rows = [(name, report["metrics"]["A"][name], report["metrics"]["B"][name], _interval(report["intervals"].get(name))) for name in report["metrics"]["A"]]
    rows += [
        ("refusals", *(report["refusals"][side] for side in "AB"), _interval(report["intervals"].get("refusals"))),
        ("latency p50, ms", *(report["latency_ms"][side]["p50"] for side in "AB"), _interval(report["intervals"].get("latency_ms"))),
        ("latency p95, ms", *(report["latency_ms"][side]["p95"] for side in "AB"), ""),
        ("model calls", *(report["cost"][side]["model_calls"] for side in "AB"), ""),
        ("tokens", *(report["cost"][side]["tokens"] for side in "AB"), ""),
        ("index bytes", *(report["cost"][side]["index_bytes"] for side in "AB"), ""),
        ("judgements mapped", *(report["mapped_share"][side] for side in "AB"), ""),
        ("results judged", *(report["judged_share"][side] for side in "AB"), ""),
    ]
    print_table(("", report["generations"]["A"], report["generations"]["B"], "difference [95 %]"), rows)
    if report["queries"]:
        _print_moves(report)
    elif not report["failed"]:
        say("nothing was asked: give --golden, or a period with --since in which questions were asked")
    for one in report["failed"].values():
        say(f"could not be asked: {one['query']}: {one['detail']} [{one['code']}]")


def _print_moves(report: dict[str, Any]) -> None:
    moves = report["rank_moves"]
    print(f"\n{report['queries']} questions, {report['judged_queries']} judged in both; overlap@10 {report['overlap@10']}")
    print(f"of the first ten: {moves['same']} stayed, {moves['up']} rose, {moves['down']} fell, {moves['left']} left")
    if report["worst"]:
        print()
        print_table(("worst", "overlap@10", "ndcg@10"), [(one["query"][:80], one["overlap@10"], _change(one["ndcg@10"])) for one in report["worst"]])


def _interval(found: dict[str, Any] | None) -> str:
    return f"{found['difference']:+.4f} [{found['low']:+.4f}, {found['high']:+.4f}]" if found else "-"


def _change(sides: dict[str, float] | None) -> str | None:
    return None if sides is None else f"{sides['A']} → {sides['B']}"


def _price(found: dict[str, Any]) -> str:
    size = f"{found['documents']} documents, {found['chunks']} chunks, {found['bytes']} bytes"
    return f"{found['name']}  {found['state']}  {size}; no rollback leads to it afterwards. Drop it?"


def _dropped(told: dict[str, Any]) -> str:
    holder = told["held_by"]
    if told["removed"]:
        return f"{told['generation']} is gone"
    by = f" of {holder['application'] or 'another program'} (pid {holder['pid']})" if holder else ""
    return f"{told['generation']} is dropped; its last tables go when a transaction{by} ends"
