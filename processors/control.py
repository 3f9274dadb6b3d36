"""Decisions into the tables that hold them: generations, and which of them is live."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.events import Fact, GenerationCreated, GenerationPromoted
from schemas.rows import GenerationRow, LiveRow, Row
from streams.stage import Stage
from streams.topics import CONTROL


def project(fact: Fact[GenerationCreated | GenerationPromoted]) -> Iterable[Row]:
    match fact.data:
        case GenerationCreated(generation=generation):
            yield GenerationRow(generation)
        case GenerationPromoted(generation=name):
            yield LiveRow(name)


STAGE = Stage("control", CONTROL, 1, counts="always", project=project, essential=False, shared=True)
