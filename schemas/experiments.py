"""Experiments: two profiles answer shares of the live questions, and feedback compares them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from schemas.exams import ShareInterval
from schemas.ids import sha256_hex
from schemas.models import Described, Request
from schemas.values import Value

Arm = Literal["control", "candidate"]
ARMS: tuple[Arm, ...] = ("control", "candidate")
ProfileName = Annotated[str, Field(min_length=1, max_length=200)]


class ExperimentRequest(Request):
    """Two workflow profiles to compare on live questions."""

    control: ProfileName = "default"
    """Profile whose questions take part: those that get it without naming a profile."""
    candidate: ProfileName = Field(description="Profile that answers a share of them.")
    share: float = Field(0.5, ge=0.01, le=0.99, description="Share of the candidate.")
    min_effect: float = Field(0.1, ge=0.01, le=0.5)
    """Smallest difference in the share of useful answers that the experiment must find."""


class Experiment(Value):
    experiment_id: UUID
    control: str
    candidate: str
    share: float
    min_effect: float
    started_at: datetime
    stopped_at: datetime | None = None

    def assign(self, text: str) -> ExperimentArm:
        """Return the arm of a question or conversation: the same one for equal texts."""
        words = " ".join(text.casefold().split())
        number = int(sha256_hex(f"{self.experiment_id}\n{words}".encode())[:8], 16)
        arm: Arm = "candidate" if number < self.share * 16**8 else "control"
        return ExperimentArm(experiment_id=self.experiment_id, arm=arm)


class ExperimentArm(Value):
    """The part of an experiment that a question was assigned to."""

    experiment_id: UUID
    arm: Arm


class ArmReport(Described):
    arm: Arm
    profile: str
    runs: int = Field(description="Answered questions and searches.")
    refused: int
    useful: ShareInterval = Field(description="Share of useful ones among those with feedback.")


class Difference(Described):
    """Candidate minus control in the share of useful answers, with 95 % (Newcombe, 1998)."""

    value: float
    low: float
    high: float


Verdict = Literal["collecting", "candidate", "control", "no_difference"]


class ExperimentReport(Experiment):
    arms: list[ArmReport]
    difference: Difference | None = Field(description="Null until both arms have feedback.")
    needed: int
    """Judged answers that each arm needs to find `min_effect` four times in five. A decision before
    is wrong more often than the interval says.
    """
    missing: dict[Arm, int] = Field(description="Judged answers that each arm still lacks.")
    verdict: Verdict
    """`collecting` until both arms have `needed` judged answers, then the better profile, or
    `no_difference`.
    """
