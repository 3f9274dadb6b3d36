"""Decisions into the tables that hold them: generations, which of them is live, and sources."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.events import Fact, GenerationBuilt, GenerationCreated, GenerationDropped, GenerationPromoted, SourceAdded, SourceRemoved, SourceReset
from schemas.rows import BuiltRow, DroppedRow, GenerationRow, LiveRow, Row, SourceEndRow, SourceResetRow, SourceRow
from streams.stage import Stage
from streams.topics import CONTROL


def project(
    fact: Fact[GenerationCreated | GenerationBuilt | GenerationPromoted | GenerationDropped | SourceAdded | SourceRemoved | SourceReset],
) -> Iterable[Row]:
    match fact.data:
        case GenerationCreated(generation=generation, base=base, purpose=purpose):
            yield GenerationRow(generation, base, purpose)
        case GenerationBuilt(generation=name, barrier=barrier):
            yield BuiltRow(name, barrier)
        case GenerationPromoted(generation=name):
            yield LiveRow(name, fact.position.offset if fact.position else 0)
        case GenerationDropped(generation=name):
            yield DroppedRow(name)
        case SourceAdded(source=spec, epoch=epoch):
            yield SourceRow(spec, epoch)
        case SourceRemoved(source=name, withdraw=withdraw):
            yield SourceEndRow(name, withdraw)
        case SourceReset(source=name, reset=reset):
            yield SourceResetRow(name, reset)


STAGE = Stage("control", CONTROL, 1, counts="always", project=project, essential=False, shared=True)
