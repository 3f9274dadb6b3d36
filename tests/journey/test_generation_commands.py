"""`anabranch generations` and `feedback` against a fake API: requests, output, exit codes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from anabranch.cli import main
from api.app import create_app
from evaluation.comparison import (
    ComparedQuestion,
    FailedQuestion,
    JudgementCounts,
    SideResult,
    build_comparison_report,
)
from evaluation.promotion_gate import PromotionGate
from schemas.errors import PermanentError
from schemas.principals import Principal
from tests.fakes.failing_server import run_asgi_app
from tests.unit.api_fakes import FakeGenerations, make_services


class CannedGenerations(FakeGenerations):
    async def compare(self, tenant: str, a: str, b: str, request: Any) -> dict[str, Any]:
        await super().compare(tenant, a, b, request)
        if not request.queries:
            return build_comparison_report(
                {"A": a, "B": b}, [], JudgementCounts(0, {"A": 0, "B": 0}), {"A": 1, "B": 2}, {}
            )
        question = ComparedQuestion(
            "q",
            "What does the stork build?",
            "golden",
            SideResult([], False, 10.0),
            SideResult([], True, 20.0),
        )
        report = build_comparison_report(
            {"A": a, "B": b},
            [question],
            JudgementCounts(0, {"A": 0, "B": 0}),
            {"A": 1, "B": 2},
            {"golden:1": FailedQuestion("odd", "X", "y")},
        )
        return report | {"profiles": {"A": request.profile, "B": request.profile_b}}

    async def drop(self, name: str) -> dict[str, Any]:
        if name == "g1":
            raise PermanentError(
                "generation g1 is the one that answers",
                code="GENERATION_IS_LIVE",
                remedy="Promote another one first.",
            )
        return await super().drop(name)

    async def list_generations(self, caller: Principal) -> list[dict[str, Any]]:
        columns = dict.fromkeys(("documents", "chunks", "bytes"), 7)
        return [
            {**one, **columns, "config": {"chunk": {"strategy": "structure", "fingerprint": ""}}}
            for one in await super().list_generations(caller)
        ]


@dataclass
class GenerationsCommand:
    generations: CannedGenerations
    url: str

    def __call__(self, *arguments: str) -> int:
        return main(["generations", *arguments, "--server", self.url])


@pytest.fixture
def command() -> Iterator[GenerationsCommand]:
    desk = CannedGenerations()
    with run_asgi_app(create_app(make_services(generations=desk))) as url:
        yield GenerationsCommand(desk, url)


def test_failed_gate_exits_with_6_and_reasons(
    command: GenerationsCommand, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gate = tmp_path / "gate.yaml"
    gate.write_text("min_queries: 100\n")
    assert command("promote", "g2", "--gate", str(gate), "--json") == 6
    output = capsys.readouterr()
    assert json.loads(output.out)["reasons"] == ["no gain"] and "gate failed: no gain" in output.err
    assert command.generations.requests[-1][1].gate == PromotionGate(min_queries=100)


def test_promote_without_gate_skips_comparison(
    command: GenerationsCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("promote", "g2") == 0
    assert (
        command.generations.requests[-1][1].gate is None
        and "g2 is live; g1 is on standby" in capsys.readouterr().err
    )


def test_promote_exit_codes_for_lagging_generation_and_invalid_gate(
    command: GenerationsCommand, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("promote", "g3") == 1
    assert "GENERATION_BEHIND" in capsys.readouterr().err
    (tmp_path / "gate.yaml").write_text("minimum: 3\n")
    assert command("promote", "g2", "--gate", str(tmp_path / "gate.yaml")) == 2
    assert "NOT_A_GATE" in capsys.readouterr().err


def test_compare_sends_golden_queries_and_prints_report(
    command: GenerationsCommand, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = tmp_path / "golden.jsonl"
    golden.write_text(
        '{"query": "Where?", "judgements": [{"external_id": "d", "quote": "here", "grade": 3}]}\n'
    )
    assert (
        command(
            "compare",
            "g1",
            "g2",
            "--golden",
            str(golden),
            "--since",
            "2026-11-01",
            "--queries",
            "5",
        )
        == 0
    )
    pair, wanted = command.generations.requests[-1]
    assert (
        pair == "g1 g2" and wanted.golden[0].judgements[0].quote == "here" and wanted.queries == 5
    )
    assert wanted.since.isoformat() == "2026-11-01T00:00:00+00:00"
    output = capsys.readouterr()
    assert (
        "refusals" in output.out
        and "+1.0000 [+1.0000, +1.0000]" in output.out
        and "query failed: odd: y [X]" in output.err
    )


def test_compared_profiles_of_one_generation_are_named(
    command: GenerationsCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("compare", "g1", "g1", "--profile-b", "rrf") == 0
    header = capsys.readouterr().out.splitlines()[0]
    assert header.split() == ["g1", "g1", "rrf", "difference", "[95", "%]"]


def test_compare_without_queries_prints_hint(
    command: GenerationsCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("compare", "g1", "g2", "--queries", "0") == 0
    output = capsys.readouterr()
    assert "no queries to compare" in output.err and "overlap" not in output.out


def test_feedback_command_sends_grades_and_rejects_invalid_options(
    command: GenerationsCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    run, chunk = UUID(int=1), UUID(int=2)
    assert (
        main(
            [
                "feedback",
                str(run),
                "--up",
                "--chunk",
                f"{chunk}=3",
                "--note",
                "right",
                "--server",
                command.url,
            ]
        )
        == 0
    )
    assert "with 1 judged passages" in capsys.readouterr().err
    for wrong in (["--up", "--down"], ["--chunk", str(chunk)], []):
        assert main(["feedback", str(run), *wrong, "--server", command.url]) == 2


def test_list_show_rollback_and_drop_commands(
    command: GenerationsCommand, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("list") == 0 and "standby" in capsys.readouterr().out
    assert command("show", "g2") == 0 and "strategy structure" in capsys.readouterr().out
    assert command("show", "g9") == 3
    assert command("rollback") == 0
    assert command("drop", "g2", "--yes") == 0 and "g2 dropped" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert command("drop", "g2", "--json") == 1
    output = capsys.readouterr()
    assert output.out == "" and "Drop generation" in output.err
    assert "nothing was changed" in output.err
    assert command("drop", "g2") == 2
    assert "NOT_CONFIRMED" in capsys.readouterr().err


def test_drop_of_live_generation_fails_without_prompt(
    command: GenerationsCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("drop", "g1") == 1
    errors = capsys.readouterr().err
    assert "GENERATION_IS_LIVE" in errors and "Drop generation" not in errors


def test_promote_rejects_queries_without_gate(
    command: GenerationsCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a gate nothing is compared, so the queries would have no effect."""
    assert command("promote", "g2", "--queries", "5") == 2
    assert "--gate" in capsys.readouterr().err and not command.generations.requests


def test_reindex_sends_options_and_rejects_conflicts(
    command: GenerationsCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    here = ["--server", command.url, "--json"]
    assert main(["reindex", "--pause", "g2", *here]) == 0
    assert "events_per_second" not in json.loads(capsys.readouterr().out)
    assert main(["reindex", "--resume", "g2", "--events-per-second", "7", *here]) == 0
    build = json.loads(capsys.readouterr().out)
    assert (build["paused"], build["events_per_second"]) == (False, 7)
    with pytest.raises(SystemExit, match="2"):
        main(["reindex", "--pause", "g2", *here, "--events-per-second", "0"])
    for wrong in (
        ["--pause", "g2", "--resume", "g2"],
        ["--pause", "g2", "--plan"],
        ["--plan", "--wait", "--set", "chunk.child_tokens=100"],
    ):
        assert main(["reindex", *wrong, *here]) == 2
    assert "cannot be combined" in capsys.readouterr().err
