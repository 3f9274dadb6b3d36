"""Any changes, order and crashes leave no stale rows and the latest revisions visible."""

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
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from schemas.events import Content, DocumentAmended, DocumentReceived, DocumentWithdrawn
from schemas.ids import make_document_id
from sql.catalog.revisions import PgRevisions
from sql.database import Pool, close_pool, open_pool
from sql.embedded.server import EmbeddedPostgres
from sql.inbox.ledger import PgLedger
from sql.operations.integrity import check_integrity
from streams.partition_sink import PartitionLimits
from streams.publisher import build_raw_record
from tests.support.postgres_fixture import clone_database
from tests.support.repetitions import count_examples
from tests.support.simulated_pipeline import EPOCH, GENERATION, LONG, SHORT, SimulatedPipeline

NAMES = st.sampled_from("ab")
TEXTS = ["one", "one\ntwo\nthree", "other", LONG, ""]
T = TypeVar("T")


class DocumentChangesMachine(RuleBasedStateMachine):
    """`said` are the changes by number: what should hold follows from the latest. Numbers may come
    in any order.
    """

    template: tuple[str, str]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="anabranch-changes-"))
        self.database = contextmanager(clone_database)(*self.template)
        self.loop = asyncio.new_event_loop()
        self.world, self.pool = self.run_coroutine(self._open(self.database.__enter__()))
        self.texts_by_number: dict[str, dict[int, str | None]] = {}
        self.n_events = 0
        self.settled = True

    def run_coroutine(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    async def _open(self, dsn: str) -> tuple[SimulatedPipeline, Pool]:
        pool = await open_pool(dsn, size=4, name="test")
        world = SimulatedPipeline(
            self.folder,
            [],
            0,
            PartitionLimits(claim_batch_records=3, max_reactions=3, max_pending=4),
            tables_ledger=PgLedger(pool, GENERATION),
            revisions=PgRevisions(pool),
        )
        world.embedder.flaky = False
        await world.create_generation()
        return world, pool

    def teardown(self) -> None:
        self.run_coroutine(close_pool(self.pool))
        self.loop.close()
        self.database.__exit__(None, None, None)
        shutil.rmtree(self.folder, ignore_errors=True)

    def push(
        self, event: DocumentReceived | DocumentAmended | DocumentWithdrawn, number: int
    ) -> None:
        async def append_event() -> None:
            record = await build_raw_record(
                event, f"e{self.n_events}", source="shop", time=EPOCH, codec=self.world.codec
            )
            record.headers["ce_sequence"] = str(number).encode()  # type: ignore[index]
            self.world.log.store(record)

        self.run_coroutine(append_event())
        self.settled = False

    def next_number(self, late: int) -> int:
        """Return numbers ten apart, to leave room for late changes."""
        self.n_events += 1
        return self.n_events * 10 - 15 * late if self.n_events > 2 else self.n_events * 10

    def change(self, name: str, text: str | None, late: int) -> None:
        number = self.next_number(late)
        changes = self.texts_by_number.setdefault(name, {})
        if number in changes:
            return
        changes[number] = text
        event = (
            DocumentReceived(external_id=name, content=Content(text=text))
            if text is not None
            else DocumentWithdrawn(external_id=name)
        )
        self.push(event, number)

    @rule(name=NAMES, text=st.sampled_from(TEXTS[:-1]), late=st.sampled_from([0, 0, 0, 1]))
    def send(self, name: str, text: str, late: int) -> None:
        """Upload, edit, or upload again."""
        self.change(name, text, late)

    @rule(name=NAMES)
    def replace_long_with_short(self, name: str) -> None:
        self.change(name, LONG, 0)
        self.change(name, SHORT, 0)

    @rule(name=NAMES, late=st.sampled_from([0, 0, 1]))
    def delete(self, name: str, late: int) -> None:
        self.change(name, None, late)

    @rule(name=NAMES, late=st.sampled_from([0, 1]), title=st.sampled_from(["x", ""]))
    def amend(self, name: str, late: int, title: str) -> None:
        self.push(
            DocumentAmended(external_id=name, title=title, tags=["t"]), self.next_number(late) + 1
        )

    @rule()
    def resend_last_event(self) -> None:
        """Send the last event again, as a producer does that lost the answer."""
        raw = self.world.log.topics.get("raw")
        if raw:
            self.world.log.store(raw[-1].record)
            self.settled = False

    @precondition(lambda self: not self.settled)
    @rule(deaths=st.lists(st.integers(1, 60), max_size=3, unique=True), repeats=st.integers(1, 3))
    def run_pipeline(self, deaths: list[int], repeats: int) -> None:
        """Process all pending events with crashes and repeated deliveries."""
        crossed = self.world.crash_injector.n_steps
        self.world.crash_points, self.world.repeats = [crossed + death for death in deaths], repeats
        self.run_coroutine(self.world.run())
        self.world.crash_injector.crash_points = []
        self.settled = True

    @invariant()
    def has_no_orphan_rows(self) -> None:
        orphan_counts = self.run_coroutine(check_integrity(self.pool, assume_idle=self.settled))
        assert {place: rows for place, rows in orphan_counts.items() if rows} == {}

    @invariant()
    def latest_change_is_visible(self) -> None:
        if not self.settled:
            return
        rows = self.run_coroutine(
            self.pool.fetch(
                "select v.document_id, t.markdown from visible v "
                "join revision_texts t using (generation, document_id, ord)"
            )
        )
        expected = {
            make_document_id("default", "shop", name): text
            for name, texts in self.texts_by_number.items()
            if (text := texts[max(texts)]) is not None
        }
        assert {row["document_id"]: row["markdown"] for row in rows} == expected


@pytest.mark.drawn
@pytest.mark.parametrize("steps", [18])
def test_any_change_sequence_leaves_no_orphan_rows(
    steps: int, postgres_server: EmbeddedPostgres, template_database: str
) -> None:
    class Here(DocumentChangesMachine):
        template = (postgres_server.dsn, template_database)

    quick = settings(
        max_examples=count_examples(60),
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Here, settings=quick)
