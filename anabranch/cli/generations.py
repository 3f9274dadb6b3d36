"""`anabranch generations`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from anabranch.cli.api_calls import LONG_TIMEOUT_S, call_api, format_time, get, post
from anabranch.cli.errors import GATE_FAILED, OK
from anabranch.cli.options import JUDGEMENT_STAGES, REMOTE, RemoteOptions, Yes, make_group
from anabranch.cli.output import confirm, print_fields, print_stderr, print_table
from schemas.errors import InvalidRequest

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient

app = make_group("generations")
GenerationName = Annotated[str, Parameter(help="Generation name, such as g2.")]


@Parameter(name="*")
@dataclass(frozen=True)
class ComparisonOptions:
    """Queries to compare two generations with."""

    golden: Path | None = None
    """File with one golden query and its judgements per line."""
    since: datetime | None = None
    """Use real queries and feedback from this time on (UTC unless it has a zone)."""
    until: datetime | None = None
    """Use real queries and feedback before this time (UTC unless it has a zone)."""
    queries: int = 200
    """Maximum number of real queries, the latest first."""
    answers: bool = False
    """Generate answers, too. Uses tokens of the chat model."""
    profile: str | None = None
    """Retrieval profile, instead of the one of each query."""
    profile_b: str | None = None
    """Retrieval profile of the second side, to compare profiles."""

    def to_request(self) -> dict[str, Any]:
        """Build the body of the HTTP request. Raises InvalidRequest for an invalid golden file."""
        from evaluation.comparison import read_golden

        questions = (
            [question.model_dump(mode="json") for question in read_golden(self.golden)]
            if self.golden is not None
            else []
        )
        period = {"since": format_time(self.since), "until": format_time(self.until)}
        return {**asdict(self), **period, "golden": questions}


DEFAULT_COMPARISON = ComparisonOptions()


@app.command(name="list")
def list_generations(*, common: RemoteOptions = REMOTE) -> int:
    """List generations that are not dropped, with their documents and size."""
    optional = ("base", "bytes", "purpose", "built_at", "chunks", "documents")
    columns = ("name", "state", "purpose", "base", "documents", "chunks", "bytes", "built_at")
    return common.show_page(get("/v1/generations", common), *columns, optional=optional)


@app.command
def show(name: GenerationName, /, *, common: RemoteOptions = REMOTE) -> int:
    """Show a generation and its configuration."""
    generation = get(f"/v1/generations/{name}", common)
    fields = {
        name: value for name, value in generation.items() if name not in ("config", "how", "topics")
    }
    return common.show(generation, lambda: print_fields(fields | generation["config"]))


@app.command
def diff(a: str, b: str, /, *, common: RemoteOptions = REMOTE) -> int:
    """Show the settings in which two generations differ.

    Args:
        a: Generation name, such as g1.
        b: Generation name, such as g2.
    """
    first, second = (get(f"/v1/generations/{name}", common)["config"] for name in (a, b))
    differences = _diff_configs(first, second)
    body = {name: {"A": value_a, "B": value_b} for name, value_a, value_b in differences}
    if common.print_if_json({"generations": {"A": a, "B": b}, "differences": body}):
        return OK
    if differences:
        common.print_table(("setting", a, b), differences)
    else:
        common.print_note(f"{a} and {b} have the same settings")
    return OK


def _diff_configs(
    first: dict[str, Any], second: dict[str, Any], prefix: str = ""
) -> list[tuple[str, Any, Any]]:
    """Return (setting, first value, second value) where they differ; None for a missing setting."""
    differences: list[tuple[str, Any, Any]] = []
    for name in dict.fromkeys([*first, *second]):
        first_value, second_value = first.get(name), second.get(name)
        if isinstance(first_value, dict) and isinstance(second_value, dict):
            differences += _diff_configs(first_value, second_value, f"{prefix}{name}.")
        elif first_value != second_value:
            differences.append((f"{prefix}{name}", first_value, second_value))
    return differences


@app.command
def compare(
    a: str,
    b: str,
    /,
    *,
    options: ComparisonOptions = DEFAULT_COMPARISON,
    common: RemoteOptions = REMOTE,
) -> int:
    """Run the same queries against two generations: golden ones, and real ones of a period.

    Args:
        a: Baseline generation, such as g1.
        b: Candidate generation, such as g2.
    """
    body = {"a": a, "b": b, **options.to_request()}
    report = _post("/v1/generations/compare", body, common)
    return common.show(report, lambda: _print_report(report))


@app.command
def promote(
    name: GenerationName,
    /,
    *,
    gate: Path | None = None,
    force: bool = False,
    options: ComparisonOptions = DEFAULT_COMPARISON,
    common: RemoteOptions = REMOTE,
) -> int:
    """Make a generation live, if it has every document. Exits 6 if the gate fails.

    Args:
        gate: YAML file with conditions on a comparison with the live generation. Without it,
            nothing is compared.
        force: Promote the generation without a calibration of its own.
    """
    if gate is None and options != DEFAULT_COMPARISON:
        raise InvalidRequest(
            "Comparison options need --gate.",
            remedy="Add --gate, or compare with `anabranch generations compare` before you "
            "promote.",
        )
    from evaluation.promotion_gate import read_gate

    body = {
        "gate": read_gate(gate).model_dump(mode="json") if gate else None,
        "force": force,
        "comparison": options.to_request(),
    }
    return _print_promotion(_post(f"/v1/generations/{name}/promote", body, common), common)


@app.command
def rollback(*, common: RemoteOptions = REMOTE) -> int:
    """Make the previous generation live again."""
    return _print_promotion(_post("/v1/generations/rollback", {}, common), common)


@app.command
def drop(name: str, /, *, yes: Yes = False, common: RemoteOptions = REMOTE) -> int:
    """Drop a generation permanently, with its tables and the topics that no other generation uses.

    Args:
        name: Generation name, such as g1.
    """

    async def work(client: ApiClient) -> dict[str, Any]:
        generation = await client.get(f"/v1/generations/{name}")
        size = (
            f"{generation['documents']} documents, {generation['chunks']} chunks, "
            f"{generation['bytes']} bytes"
        )
        confirm(
            f"Drop generation {generation['name']} ({generation['state']}, {size}) "
            "permanently? It cannot be rolled back to.",
            # The live generation is not worth a prompt: the server refuses to drop it.
            yes=yes or generation["state"] == "live",
        )
        return await client.call("DELETE", f"/v1/generations/{name}")

    result = call_api(common, work, stages=JUDGEMENT_STAGES, timeout_s=LONG_TIMEOUT_S)
    pending = ""
    if not result["removed"]:
        holder = result["blocked_by"]
        by = (
            f" of {holder['application'] or 'another program'} (pid {holder['pid']})"
            if holder
            else ""
        )
        pending = f"; its last tables are removed when a transaction{by} ends"
    return common.acknowledge(result, f"{result['generation']} dropped{pending}")


def _post(path: str, body: dict[str, Any], common: RemoteOptions) -> dict[str, Any]:
    return post(path, body, common, stages=JUDGEMENT_STAGES, timeout_s=LONG_TIMEOUT_S)


def _print_promotion(result: dict[str, Any], common: RemoteOptions) -> int:
    if common.is_json:
        common.print_result(result)
    elif result["promoted"]:
        previous = f"; {result['previous']} is on standby" if result["previous"] else ""
        common.print_note(f"{result['generation']} is live{previous}")
    if not result["promoted"]:
        for reason in result["reasons"]:
            print_stderr(f"gate failed: {reason}")
    return OK if result["promoted"] else GATE_FAILED


def _print_report(report: dict[str, Any]) -> None:
    rows = [
        (
            name,
            report["metrics"]["A"][name],
            report["metrics"]["B"][name],
            _format_interval(report["intervals"].get(name)),
        )
        for name in report["metrics"]["A"]
    ]
    rows += [
        (
            "refusals",
            *(report["refusals"][side] for side in "AB"),
            _format_interval(report["intervals"].get("refusals")),
        ),
        (
            "latency p50, ms",
            *(report["latency_ms"][side]["p50"] for side in "AB"),
            _format_interval(report["intervals"].get("latency_ms")),
        ),
        ("latency p95, ms", *(report["latency_ms"][side]["p95"] for side in "AB"), ""),
        ("model calls", *(report["cost"][side]["model_calls"] for side in "AB"), ""),
        ("tokens", *(report["cost"][side]["tokens"] for side in "AB"), ""),
        ("index bytes", *(report["cost"][side]["index_bytes"] for side in "AB"), ""),
        ("judgements mapped", *(report["mapped_share"][side] for side in "AB"), ""),
        ("results judged", *(report["judged_share"][side] for side in "AB"), ""),
    ]
    profiles = report.get("profiles", {})
    labels = (f"{report['generations'][side]} {profiles.get(side) or ''}".rstrip() for side in "AB")
    print_table(("", *labels, "difference [95 %]"), rows)
    if report["queries"]:
        _print_rank_moves(report)
    elif not report["failed"]:
        print_stderr(
            "no queries to compare: add --golden, or --since with a period that has queries"
        )
    for failure in report["failed"].values():
        print_stderr(f"query failed: {failure['query']}: {failure['detail']} [{failure['code']}]")


def _print_rank_moves(report: dict[str, Any]) -> None:
    moves = report["rank_moves"]
    print(
        f"\n{report['queries']} queries, {report['judged_queries']} judged in both; overlap@10 "
        f"{report['overlap@10']}"
    )
    print(
        f"top 10: {moves['same']} unchanged, {moves['up']} rose, {moves['down']} fell, "
        f"{moves['left']} dropped out"
    )
    if report["worst"]:
        print()
        print_table(
            ("worst", "overlap@10", "ndcg@10"),
            [
                (
                    entry["query"][:80],
                    entry["overlap@10"],
                    f"{sides['A']} → {sides['B']}" if (sides := entry["ndcg@10"]) else None,
                )
                for entry in report["worst"]
            ],
        )


def _format_interval(interval: dict[str, Any] | None) -> str:
    return (
        f"{interval['difference']:+.4f} [{interval['low']:+.4f}, {interval['high']:+.4f}]"
        if interval
        else "-"
    )
