"""Project generations, sources, collections, erasures and audit events into their tables."""

from __future__ import annotations

from schemas.ports.ledger import OrderingPolicy
from schemas.topics import CONTROL
from streams.stage import Stage, project_itself

STAGE = Stage(
    "control",
    CONTROL,
    1,
    ordering_policy=OrderingPolicy.ALWAYS,
    project=project_itself,
    fails_document=False,
    serves_all_generations=True,
)
