"""Whatever is done to documents, in whatever order it arrives, and however often a worker dies over it: nothing is left behind, and what answers is what was said last."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from schemas.events import Content, DocumentAmended, DocumentReceived, DocumentWithdrawn
from schemas.ids import document_id
from sql.embedded import EmbeddedPostgres
from sql.ledger import PgLedger
from sql.pool import Pool, close_pool, open_pool
from sql.residue import residue
from sql.revisions import PgRevisions
from streams.partition import Bounds
from streams.submission import submission
from tests.postgres_fixture import cloned
from tests.property.world import EPOCH, GENERATION, World

NAMES = st.sampled_from("ab")
LINES = [f"line {number} of the long report about tolls" for number in range(50)]
LONG, SHORT = "\n".join(LINES), "\n".join(LINES[:3])
TEXTS = ["one", "one\ntwo\nthree", "other", LONG, ""]
T = TypeVar("T")


class Changes(RuleBasedStateMachine):
    """`said` are the changes by number: what should hold follows from the latest. Numbers may come in any order."""

    template: tuple[str, str]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="anabranch-changes-"))
        self.database = contextmanager(cloned)(*self.template)
        self.loop = asyncio.new_event_loop()
        self.world, self.pool = self.do(self._begin(self.database.__enter__()))
        self.said: dict[str, dict[int, str | None]] = {}
        self.numbers = 0
        self.settled = True

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    async def _begin(self, dsn: str) -> tuple[World, Pool]:
        pool = await open_pool(dsn, size=4, name="test")
        world = World(
            self.folder, [], 0, Bounds(claim_records=3, reactions=3, waiting=4), tables_ledger=PgLedger(pool, GENERATION), revisions=PgRevisions(pool)
        )
        world.embedder.moody = False
        await world.create_generation()
        return world, pool

    def teardown(self) -> None:
        self.do(close_pool(self.pool))
        self.loop.close()
        self.database.__exit__(None, None, None)
        shutil.rmtree(self.folder, ignore_errors=True)

    def push(self, event: DocumentReceived | DocumentAmended | DocumentWithdrawn, number: int) -> None:
        async def keep() -> None:
            record = await submission(event, f"e{self.numbers}", source="shop", time=EPOCH, codec=self.world.codec)
            record.headers["ce_sequence"] = str(number).encode()  # type: ignore[index]
            self.world.log.keep(record)

        self.do(keep())
        self.settled = False

    def next_number(self, late: int) -> int:
        """Ten apart, so that late ones find room."""
        self.numbers += 1
        return self.numbers * 10 - 15 * late if self.numbers > 2 else self.numbers * 10

    def change(self, name: str, text: str | None, late: int) -> None:
        number = self.next_number(late)
        changes = self.said.setdefault(name, {})
        if number in changes:
            return
        changes[number] = text
        event = DocumentReceived(external_id=name, content=Content(text=text)) if text is not None else DocumentWithdrawn(external_id=name)
        self.push(event, number)

    @rule(name=NAMES, text=st.sampled_from(TEXTS[:-1]), late=st.sampled_from([0, 0, 0, 1]))
    def send(self, name: str, text: str, late: int) -> None:
        """Upload, edit, or upload again."""
        self.change(name, text, late)

    @rule(name=NAMES)
    def shrink(self, name: str) -> None:
        self.change(name, LONG, 0)
        self.change(name, SHORT, 0)

    @rule(name=NAMES, late=st.sampled_from([0, 0, 1]))
    def delete(self, name: str, late: int) -> None:
        self.change(name, None, late)

    @rule(name=NAMES, late=st.sampled_from([0, 1]), title=st.sampled_from(["x", ""]))
    def amend(self, name: str, late: int, title: str) -> None:
        self.push(DocumentAmended(external_id=name, title=title, tags=["t"]), self.next_number(late) + 1)

    @rule()
    def send_the_same_again(self) -> None:
        """What a producer does that lost the answer: the last event of all, once more."""
        raw = self.world.log.topics.get("raw")
        if raw:
            self.world.log.keep(raw[-1].record)
            self.settled = False

    @precondition(lambda self: not self.settled)
    @rule(deaths=st.lists(st.integers(1, 60), max_size=3, unique=True), repeats=st.integers(1, 3))
    def work(self, deaths: list[int], repeats: int) -> None:
        """Everything that is owed, dying on the way, with every delivery made several times."""
        crossed = self.world.wire.crossings
        self.world.deaths, self.world.repeats = [crossed + death for death in deaths], repeats
        self.do(self.world.run())
        self.world.wire.deaths = []
        self.settled = True

    @invariant()
    def nothing_is_left_behind(self) -> None:
        left = self.do(residue(self.pool, settled=self.settled))
        assert {place: rows for place, rows in left.items() if rows} == {}

    @invariant()
    def what_answers_was_said_last(self) -> None:
        if not self.settled:
            return
        rows = self.do(self.pool.fetch("select v.document_id, t.markdown from visible v join revision_texts t using (generation, document_id, ord)"))
        expected = {document_id("default", "shop", name): text for name, said in self.said.items() if (text := said[max(said)]) is not None}
        assert {row["document_id"]: row["markdown"] for row in rows} == expected


@pytest.mark.parametrize("steps", [18])
def test_any_sequence_of_changes_leaves_nothing_behind(steps: int, postgres_server: EmbeddedPostgres, template_database: str) -> None:
    class Here(Changes):
        template = (postgres_server.dsn, template_database)

    quick = settings(max_examples=12, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Here, settings=quick)
