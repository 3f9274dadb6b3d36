"""`anabranch experiments`."""

from __future__ import annotations

from typing import Any

from anabranch.cli.api_calls import get, post
from anabranch.cli.names import EXPERIMENTS, ExperimentId, get_by_name, post_by_name
from anabranch.cli.options import REMOTE, RemoteOptions, make_group

app = make_group("experiments")


@app.command
def start(
    control: str,
    candidate: str,
    /,
    *,
    share: float = 0.5,
    min_effect: float = 0.1,
    common: RemoteOptions = REMOTE,
) -> int:
    """Let a candidate profile answer a share of the live questions.

    Args:
        control: Profile whose questions take part: those that get it without naming a profile.
        candidate: Profile that answers a share of them.
        share: Share of the candidate.
        min_effect: Smallest difference in the share of useful answers to find.
    """
    body = {"control": control, "candidate": candidate, "share": share, "min_effect": min_effect}
    report = post("/v1/experiments", body, common, stages=("control",))
    return common.show(report, lambda: print(report["experiment_id"]))


@app.command(name="list")
def list_experiments(*, common: RemoteOptions = REMOTE) -> int:
    """List experiments, the latest first."""
    page = get("/v1/experiments", common)
    columns = ("experiment_id", "control", "candidate", "share", "started_at", "verdict")
    return common.show_page(page, *columns, optional=("share", "started_at"))


@app.command
def show(experiment: ExperimentId, /, *, common: RemoteOptions = REMOTE) -> int:
    """Show the outcome of each arm, and what a decision needs."""
    report = get_by_name(EXPERIMENTS, experiment, "", common)
    return common.show(report, lambda: _print_report(report, common))


@app.command
def stop(experiment: ExperimentId, /, *, common: RemoteOptions = REMOTE) -> int:
    """Stop an experiment. All its questions get the control from then on."""
    report = post_by_name(EXPERIMENTS, experiment, "/stop", {}, common, stages=("control",))
    return common.show(report, lambda: _print_report(report, common))


def _print_report(report: dict[str, Any], common: RemoteOptions) -> None:
    rows = [
        (arm["profile"], arm["runs"], arm["refused"], *arm["useful"].values())
        for arm in report["arms"]
    ]
    common.print_table(("profile", "runs", "refused", "useful", "low", "high", "judged"), rows)
    if difference := report["difference"]:
        print(
            "difference {value:+.3f}, 95 % between {low:+.3f} and {high:+.3f}".format(**difference)
        )
    print(f"{report['verdict']}; a decision needs {report['needed']} judged answers of each")
