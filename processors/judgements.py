"""Project feedback, judgements and facts into their tables."""

from __future__ import annotations

from schemas.ports.ledger import OrderingPolicy
from schemas.topics import FEEDBACK
from streams.stage import Stage, project_itself

STAGE = Stage(
    "judgements",
    FEEDBACK,
    1,
    ordering_policy=OrderingPolicy.ALWAYS,
    project=project_itself,
    fails_document=False,
    serves_all_generations=True,
)
