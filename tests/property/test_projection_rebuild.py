"""Projecting the log in any order of topics gives the tables that the stages wrote."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from processors import STAGES
from schemas.events import Content, DocumentAmended, DocumentReceived, DocumentWithdrawn, Event
from schemas.ports.ledger import Ledger, ProjectedEvent
from schemas.rows import PartCompletedRow, TextRow
from sql.catalog.revisions import PgRevisions
from sql.database import Pool, close_pool, open_pool
from sql.inbox.ledger import PgLedger
from sql.index.derived_tables import DERIVED_TABLES
from sql.operations.integrity import compute_checksum
from streams.partition_sink import PartitionLimits
from streams.publisher import build_raw_record
from streams.stage import Stage
from tests.fakes.memory_ledger import MemoryLedger
from tests.support.repetitions import draw_examples, repeat
from tests.support.simulated_pipeline import EPOCH, GENERATION, SimulatedPipeline

PROJECTING_STAGES = [stage for stage in STAGES if stage.projects]


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """A document is sent (withdrawn, if `text` is None; amended, if `amendment` is set) as
    change `number` of its source. `wait_for_previous`: earlier changes have settled by then.
    """

    name: str
    number: int
    text: str | None
    force: bool = False
    wait_for_previous: bool = True
    title: str | None = None
    amendment: str | None = None

    def event(self) -> DocumentReceived | DocumentAmended | DocumentWithdrawn:
        if self.amendment is not None:
            return DocumentAmended(external_id=self.name, **AMENDMENTS[self.amendment])
        if self.text is None:
            return DocumentWithdrawn(external_id=self.name)
        return DocumentReceived(
            external_id=self.name,
            content=Content(text=self.text),
            force=self.force,
            title=self.title,
            metadata={"k": 1},
        )


AMENDMENTS: dict[str, Any] = {
    "title": {"title": "amended"},
    "no title": {"title": ""},
    "tags and a key": {"tags": ["x"], "metadata": {"k": 2, "l": [3]}},
    "no tags and no key": {"tags": [], "metadata": {"k": None}},
    "collection": {"collection": "c"},
}
TEXTS = ["one", "one\ntwo\nthree", "other", "poison", ""]
READABLE = [text for text in TEXTS if text != "poison"]


def changes_to(texts: Sequence[str]) -> st.SearchStrategy[DocumentChange]:
    optional_texts = st.one_of(st.none(), st.sampled_from(texts))
    forced = st.sampled_from([False, False, False, True])
    sent = st.builds(
        DocumentChange,
        st.sampled_from("ab"),
        st.integers(1, 6),
        optional_texts,
        forced,
        st.booleans(),
        st.sampled_from([None, None, "given"]),
    )
    amended = st.builds(
        DocumentChange,
        st.sampled_from("ab"),
        st.integers(1, 6),
        wait_for_previous=st.booleans(),
        text=st.none(),
        amendment=st.sampled_from(sorted(AMENDMENTS)),
    )
    return st.one_of(sent, sent, amended)


LATE_WITHDRAWAL = [
    DocumentChange("a", 1, "one"),
    DocumentChange("a", 4, "one"),
    DocumentChange("a", 2, None),
]
"""A document, the same again, and a withdrawal that belongs between the two."""
TWO_LATE_WITHDRAWALS = [
    *LATE_WITHDRAWAL,
    DocumentChange("a", 3, None),
    DocumentChange("a", 6, "poison"),
    DocumentChange("a", 5, "one"),
]


OUT_OF_ORDER_AMENDMENTS = [
    DocumentChange("a", 4, None, amendment="title"),
    DocumentChange("a", 1, "one", title="given"),
    DocumentChange("a", 2, None, amendment="title"),
    DocumentChange("a", 5, None, amendment="tags and a key"),
    DocumentChange("a", 8, "one"),
    DocumentChange("a", 6, "one", title="given"),
    DocumentChange("a", 3, None),
    DocumentChange("b", 1, None, amendment="collection"),
]
"""Amendments before their document, an older one after a newer one, a revision that came too late
and ends what was amended, a late withdrawal.
"""


async def play_history(world: SimulatedPipeline, history: Sequence[DocumentChange]) -> None:
    """Run the history through the real stages in the order given, whatever its numbers."""
    for ordinal, change in enumerate(history):
        record = await build_raw_record(
            change.event(), f"e{ordinal}", source="shop", time=EPOCH, codec=world.codec
        )
        record.headers["ce_sequence"] = str(change.number).encode()  # type: ignore[index]
        world.log.store(record)
        if change.wait_for_previous:
            await world.run()
    await world.run()


@dataclass
class ProjectedEvents:
    """The events of every topic after ingress, with the stages that project them."""

    topics: dict[str, list[Event[Any]]] = field(default_factory=dict)

    @classmethod
    async def from_pipeline(cls, world: SimulatedPipeline) -> ProjectedEvents:
        return cls(
            {
                stage.name: [
                    await world.codec.decode(stored)
                    for stored in world.log.topics.get(stage.topic, [])
                ]
                for stage in PROJECTING_STAGES
            }
        )

    def iter_by_topic(self, stages: Iterable[Stage]) -> Iterator[tuple[Stage, Event[Any]]]:
        for stage in stages:
            yield from ((stage, fact) for fact in self.topics[stage.name])

    def iter_shuffled(
        self, rng: random.Random, *, causal: bool
    ) -> Iterator[tuple[Stage, Event[Any]]]:
        """Yield the topics interleaved, each in order; `causal` keeps causes before effects."""
        waiting = {stage.name: list(self.topics[stage.name]) for stage in PROJECTING_STAGES}
        unread = {fact.id for facts in waiting.values() for fact in facts}
        while ready := [
            stage
            for stage in PROJECTING_STAGES
            if waiting[stage.name]
            and not (causal and waiting[stage.name][0].causation_id in unread)
        ]:
            # Genesis first, as a worker waits for it.
            stage = next((stage for stage in ready if stage.name == "control"), rng.choice(ready))
            fact = waiting[stage.name].pop(0)
            unread.discard(fact.id)
            yield stage, fact


async def project_events(ledger: Ledger, facts: Iterable[tuple[Stage, Event[Any]]]) -> None:
    for stage, fact in facts:
        await ledger.claim(
            stage.name, stage.ordering_policy, [ProjectedEvent(fact, tuple(stage.project(fact)))]
        )


def list_projection_orders(
    log: ProjectedEvents, seed: int
) -> dict[str, list[tuple[Stage, Event[Any]]]]:
    control = [stage for stage in PROJECTING_STAGES if stage.name == "control"]
    others = [stage for stage in PROJECTING_STAGES if stage.name != "control"]
    return {
        "topic by topic": list(log.iter_by_topic([*control, *others])),
        "the last topic first": list(log.iter_by_topic([*control, *reversed(others)])),
        "as causes allow": list(log.iter_shuffled(random.Random(seed), causal=True)),
        "in any order": list(log.iter_shuffled(random.Random(seed), causal=False)),
    }


def summarize_ledger(ledger: MemoryLedger) -> dict[str, Any]:
    """Return all rows of documents, and what is visible and withdrawn."""
    documents: dict[UUID, Any] = {
        identity: (
            state.latest,
            state.withdrawn,
            ledger.revisions[identity],
            state.resolve_fields(),
            state.visible_order,
        )
        for identity, state in ledger.documents.items()
    }
    return {
        "documents": documents,
        "rows": set(ledger.rows),
        "chunks": {
            identity: ledger.documents[identity].chunks for identity in ledger.visible_orders
        },
    }


@draw_examples(60)
@given(history=st.lists(changes_to(TEXTS), min_size=2, max_size=8), seed=st.integers(0, 1000))
@example(history=LATE_WITHDRAWAL, seed=0)
@example(history=TWO_LATE_WITHDRAWALS, seed=0)
@example(history=OUT_OF_ORDER_AMENDMENTS, seed=0)
async def test_projections_rebuild_ledger_in_any_topic_order(
    history: list[DocumentChange], seed: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = SimulatedPipeline(Path(folder), [], seed, PartitionLimits())
        await play_history(world, history)
        for way, facts in list_projection_orders(
            await ProjectedEvents.from_pipeline(world), seed
        ).items():
            again = MemoryLedger(GENERATION)
            await project_events(again, facts)
            assert summarize_ledger(again) == summarize_ledger(world.memory_ledger), way


@draw_examples(40)
@given(
    history=st.lists(
        changes_to(READABLE),
        min_size=2,
        max_size=7,
        unique_by=lambda change: (change.name, change.number),
    ),
    seed=st.integers(0, 1000),
)
@example(history=LATE_WITHDRAWAL, seed=0)
@example(history=TWO_LATE_WITHDRAWALS, seed=0)
@example(history=OUT_OF_ORDER_AMENDMENTS, seed=0)
async def test_visible_state_does_not_depend_on_arrival_order(
    history: list[DocumentChange], seed: int
) -> None:
    """Skip an older revision that arrives after a later one, even if the later one fails."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        arrived, ordered = (
            SimulatedPipeline(Path(one), [], seed, PartitionLimits()),
            SimulatedPipeline(Path(two), [], seed, PartitionLimits()),
        )
        await play_history(arrived, history)
        await play_history(ordered, sorted(history, key=lambda change: change.number))
        assert get_visible_texts(arrived.memory_ledger) == get_visible_texts(ordered.memory_ledger)
        assert get_visible_amendments(arrived.memory_ledger) == get_visible_amendments(
            ordered.memory_ledger
        )


def get_visible_texts(ledger: MemoryLedger) -> dict[UUID, str | None]:
    """Return each document's visible text."""
    found = {
        key[1]: row
        for key, row in ledger.rows.items()
        if isinstance(row, TextRow) and ledger.visible_orders.get(key[1]) == key[2]
    }
    assert set(found) == set(ledger.visible_orders)
    return {identity: row.markdown for identity, row in found.items()}


def get_visible_amendments(ledger: MemoryLedger) -> dict[UUID, Any]:
    """Return the amendments of visible documents."""
    return {
        identity: ledger.documents[identity].resolve_fields() for identity in ledger.visible_orders
    }


def generate_history(seed: int) -> list[DocumentChange]:
    rng = random.Random(seed)
    if seed < 2:
        return [TWO_LATE_WITHDRAWALS, OUT_OF_ORDER_AMENDMENTS][seed]
    return [generate_change(rng) for _ in range(rng.randint(6, 11))]


def generate_change(rng: random.Random) -> DocumentChange:
    text, amendment = rng.choice([None, *TEXTS, "one"]), rng.choice([None, None, *AMENDMENTS])
    title = rng.choice([None, None, "given"])
    return DocumentChange(
        rng.choice("ab"),
        rng.randint(1, 9),
        text if amendment is None else None,
        rng.random() < 0.1,
        rng.random() < 0.8,
        title,
        amendment,
    )


async def count_stale_rows(pool: Pool) -> dict[str, int]:
    """Count rows of revisions older than the visible one or than the withdrawal."""
    counts = {}
    for table in DERIVED_TABLES.values():
        counts[table.name] = await pool.fetchval(
            f"""select count(*) from {table.name} t join documents d on d.id = t.document_id
                left join visible v on v.generation = t.generation and v.document_id = t.document_id
                where t.ord < v.ord or t.ord < d.withdrawn"""
        )
    return {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize("seed", repeat(6, short=3))
async def test_projections_rebuild_every_table_row(
    seed: int, database: str, other_database: str, tmp_path: Path
) -> None:
    pool, fresh = (
        await open_pool(database, size=4, name="test"),
        await open_pool(other_database, size=4, name="test"),
    )
    try:
        world = SimulatedPipeline(
            tmp_path,
            [],
            seed,
            PartitionLimits(),
            tables_ledger=PgLedger(pool, GENERATION),
            revisions=PgRevisions(pool),
        )
        world.embedder.flaky = False
        await world.create_generation()
        await play_history(world, generate_history(seed))
        assert await count_stale_rows(pool) == {}
        facts = list_projection_orders(await ProjectedEvents.from_pipeline(world), seed)
        for number, (way, ordered) in enumerate(facts.items()):
            if number % 2 == seed % 2:
                continue
            await truncate_tables(fresh)
            await project_events(PgLedger(fresh, GENERATION), ordered)
            assert await compute_checksum(fresh, include_history=True) == await compute_checksum(
                pool, include_history=True
            ), way
            assert await fetch_all_rows(fresh) == await fetch_all_rows(pool), way
            assert await count_stale_rows(fresh) == {}, way
    finally:
        await close_pool(pool)
        await close_pool(fresh)


async def fetch_all_rows(pool: Pool) -> dict[str, set[tuple[Any, ...]]]:
    """Fetch all rows of all revisions by key, visible or not, and each part's log position."""
    found = {}
    for kind, table in DERIVED_TABLES.items():
        places = (
            ", event_id, log_topic, log_partition, log_offset"
            if kind in (PartCompletedRow, TextRow)
            else ""
        )
        keys = ", ".join([*list(table.columns)[: table.n_keys]])
        found[table.name] = await pool.fetch(
            f"select document_id, ord{places}{', ' + keys if keys else ''} from {table.name}"
        )
    found["documents"] = await pool.fetch(
        "select id, latest, withdrawn, revision, accepted_id from documents"
    )
    found["amended"] = await pool.fetch(
        "select d.id, d.title, d.collection, d.tags, d.metadata, d.amended from documents d "
        "join visible v on v.document_id = d.id"
    )
    found["amendments"] = await pool.fetch(
        "select document_id, ord, accepted_id, fields, by_revision from document_amendments"
    )
    found["states"] = await pool.fetch(
        "select document_id, ord, state, unchanged, visible, chunks from revision_states"
    )
    found["dead_letters"] = await pool.fetch(
        "select event_id, stage, code, log_topic, log_offset from dead_letters"
    )
    return {name: {tuple(map(str, row)) for row in each} for name, each in found.items()}


async def truncate_tables(pool: Pool) -> None:
    names = [
        "documents",
        "document_revisions",
        "document_amendments",
        "inbox",
        "job_stages",
        "chunk_history",
        "dead_letters",
        "live_generation",
        "generations",
    ]
    dropped = await pool.fetch(
        "select inhrelid::regclass::text as name from pg_inherits join pg_class on oid = inhrelid "
        "where relkind = 'r'"
    )
    for row in dropped:
        await pool.execute(f"drop table {row['name']}")
    await pool.execute(f"truncate {', '.join(names)} cascade")
