"""The tables are a fold of the log: `project` and claims alone, in any order of its topics, give what the stages left, reactions and all."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from processors import STAGES
from schemas.events import Content, DocumentAmended, DocumentReceived, DocumentWithdrawn, Fact
from schemas.ports.ledger import Ledger, Projected
from schemas.rows import SettledRow, TextRow
from sql.checksum import checksum
from sql.derived_tables import TABLES
from sql.ledger import PgLedger
from sql.pool import Pool, close_pool, open_pool
from sql.revisions import PgRevisions
from streams.codec import Codec
from streams.memory_ledger import MemoryLedger
from streams.partition import Bounds
from streams.stage import Stage
from streams.submission import submission
from tests.property.world import EPOCH, GENERATION, World

ORDERED = [stage for stage in STAGES if stage.topic not in ("raw", "outcomes") and stage.name != "extract"]
"""Those that project, in the pipeline's order."""


@dataclass(frozen=True, slots=True)
class Change:
    """A document is sent (withdrawn, if `text` is None; amended, where something is `said`) as change `number` of its source. `wait`: everything before
    it has settled by then."""

    name: str
    number: int
    text: str | None
    force: bool = False
    wait: bool = True
    title: str | None = None
    said: str | None = None

    def event(self) -> DocumentReceived | DocumentAmended | DocumentWithdrawn:
        if self.said is not None:
            return DocumentAmended(external_id=self.name, **SAYINGS[self.said])
        if self.text is None:
            return DocumentWithdrawn(external_id=self.name)
        return DocumentReceived(external_id=self.name, content=Content(text=self.text), force=self.force, title=self.title, metadata={"k": 1})


SAYINGS: dict[str, Any] = {
    "title": {"title": "amended"},
    "no title": {"title": ""},
    "tags and a key": {"tags": ["x"], "metadata": {"k": 2, "l": [3]}},
    "no tags and no key": {"tags": [], "metadata": {"k": None}},
    "collection": {"collection": "c"},
}
TEXTS = ["one", "one\ntwo\nthree", "other", "poison", ""]
READABLE = [text for text in TEXTS if text != "poison"]


def changes_to(texts: Sequence[str]) -> st.SearchStrategy[Change]:
    said = st.one_of(st.none(), st.sampled_from(texts))
    forced = st.sampled_from([False, False, False, True])
    sent = st.builds(Change, st.sampled_from("ab"), st.integers(1, 6), said, forced, st.booleans(), st.sampled_from([None, None, "given"]))
    amended = st.builds(Change, st.sampled_from("ab"), st.integers(1, 6), wait=st.booleans(), text=st.none(), said=st.sampled_from(sorted(SAYINGS)))
    return st.one_of(sent, sent, amended)


LATE_WITHDRAWAL = [Change("a", 1, "one"), Change("a", 4, "one"), Change("a", 2, None)]
"""A document, the same again, and a withdrawal that belongs between the two."""
TWICE_LATE = [*LATE_WITHDRAWAL, Change("a", 3, None), Change("a", 6, "poison"), Change("a", 5, "one")]


AMENDED_IN_DISORDER = [
    Change("a", 4, None, said="title"),
    Change("a", 1, "one", title="given"),
    Change("a", 2, None, said="title"),
    Change("a", 5, None, said="tags and a key"),
    Change("a", 8, "one"),
    Change("a", 6, "one", title="given"),
    Change("a", 3, None),
    Change("b", 1, None, said="collection"),
]
"""Amendments before their document, an older one after a newer one, a revision that came too late and ends what was amended, a late withdrawal."""


async def play(world: World, history: Sequence[Change]) -> None:
    """Through the real stages, in the order given, whatever the numbers say."""
    for place, change in enumerate(history):
        record = await submission(change.event(), f"e{place}", source="shop", time=EPOCH, codec=world.codec)
        record.headers["ce_sequence"] = str(change.number).encode()  # type: ignore[index]
        world.log.keep(record)
        if change.wait:
            await world.run()
    await world.run()


@dataclass
class Log:
    """The facts of every topic behind the door, with the stage that projects them."""

    topics: dict[str, list[Fact[Any]]] = field(default_factory=dict)

    @classmethod
    async def of(cls, world: World) -> Log:
        codec = Codec()
        return cls({stage.name: [await codec.decode(stored) for stored in world.log.topics.get(stage.topic, [])] for stage in ORDERED})

    def by_topic(self, stages: Iterable[Stage]) -> Iterator[tuple[Stage, Fact[Any]]]:
        for stage in stages:
            yield from ((stage, fact) for fact in self.topics[stage.name])

    def shuffled(self, mood: random.Random, *, causal: bool) -> Iterator[tuple[Stage, Fact[Any]]]:
        """Each topic in its order, topics mixed; `causal`: nothing before what it follows from."""
        waiting = {stage.name: list(self.topics[stage.name]) for stage in ORDERED}
        unread = {fact.id for facts in waiting.values() for fact in facts}
        while ready := [stage for stage in ORDERED if waiting[stage.name] and not (causal and waiting[stage.name][0].causation_id in unread)]:
            # Genesis first, as a worker waits for it.
            stage = next((stage for stage in ready if stage.name == "control"), mood.choice(ready))
            fact = waiting[stage.name].pop(0)
            unread.discard(fact.id)
            yield stage, fact


async def fold(ledger: Ledger, facts: Iterable[tuple[Stage, Fact[Any]]]) -> None:
    for stage, fact in facts:
        await ledger.claim(stage.name, stage.counts, [Projected(fact, tuple(stage.project(fact)))])


def folds(log: Log, seed: int) -> dict[str, list[tuple[Stage, Fact[Any]]]]:
    control = [stage for stage in ORDERED if stage.name == "control"]
    others = [stage for stage in ORDERED if stage.name != "control"]
    return {
        "topic by topic": list(log.by_topic([*control, *others])),
        "the last topic first": list(log.by_topic([*control, *reversed(others)])),
        "as causes allow": list(log.shuffled(random.Random(seed), causal=True)),
        "in any order": list(log.shuffled(random.Random(seed), causal=False)),
    }


def shown(ledger: MemoryLedger) -> dict[str, Any]:
    """All rows of documents that the ledger holds, and what is visible and withdrawn of each."""
    documents: dict[UUID, Any] = {
        identity: (state.latest, state.withdrawn, state.revisions, ledger.amended(identity), getattr(ledger.visible.get(identity), "order", None))
        for identity, state in ledger.documents.items()
    }
    return {"documents": documents, "rows": set(ledger.rows), "chunks": {identity: flip.chunks for identity, flip in ledger.visible.items()}}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(history=st.lists(changes_to(TEXTS), min_size=2, max_size=8), seed=st.integers(0, 1000))
@example(history=LATE_WITHDRAWAL, seed=0)
@example(history=TWICE_LATE, seed=0)
@example(history=AMENDED_IN_DISORDER, seed=0)
async def test_the_log_alone_gives_the_rows_that_its_stages_left(history: list[Change], seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), [], seed, Bounds())
        await play(world, history)
        for way, facts in folds(await Log.of(world), seed).items():
            again = MemoryLedger(GENERATION)
            await fold(again, facts)
            assert shown(again) == shown(world.memory), way


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(history=st.lists(changes_to(READABLE), min_size=2, max_size=7, unique_by=lambda change: (change.name, change.number)), seed=st.integers(0, 1000))
@example(history=LATE_WITHDRAWAL, seed=0)
@example(history=TWICE_LATE, seed=0)
@example(history=AMENDED_IN_DISORDER, seed=0)
async def test_what_is_visible_in_the_end_does_not_depend_on_the_order_of_arrival(history: list[Change], seed: int) -> None:
    """Of what can be read: an older revision that comes after a later one is passed over, also where that one fails."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        arrived, ordered = World(Path(one), [], seed, Bounds()), World(Path(two), [], seed, Bounds())
        await play(arrived, history)
        await play(ordered, sorted(history, key=lambda change: change.number))
        assert texts_of(arrived.memory) == texts_of(ordered.memory)
        assert said_of(arrived.memory) == said_of(ordered.memory)


def texts_of(ledger: MemoryLedger) -> dict[UUID, str | None]:
    """Document → the text that answers for it."""
    found = {
        key[1]: row for key, row in ledger.rows.items() if isinstance(row, TextRow) and ledger.visible.get(key[1]) and ledger.visible[key[1]].order == key[2]
    }
    assert set(found) == set(ledger.visible)
    return {identity: row.markdown for identity, row in found.items()}


def said_of(ledger: MemoryLedger) -> dict[UUID, Any]:
    """Of documents that answer."""
    return {identity: ledger.amended(identity) for identity in ledger.visible}


def history_of(seed: int) -> list[Change]:
    mood = random.Random(seed)
    if seed < 2:
        return [TWICE_LATE, AMENDED_IN_DISORDER][seed]
    return [random_change(mood) for _ in range(mood.randint(6, 11))]


def random_change(mood: random.Random) -> Change:
    text, said = mood.choice([None, *TEXTS, "one"]), mood.choice([None, None, *SAYINGS])
    title = mood.choice([None, None, "given"])
    return Change(mood.choice("ab"), mood.randint(1, 9), text if said is None else None, mood.random() < 0.1, mood.random() < 0.8, title, said)


async def residue(pool: Pool) -> dict[str, int]:
    """Rows of revisions that are over: older than what is visible, or than the withdrawal."""
    counts = {}
    for table in TABLES.values():
        counts[table.name] = await pool.fetchval(
            f"""select count(*) from {table.name} t join documents d on d.id = t.document_id
                left join visible v on v.generation = t.generation and v.document_id = t.document_id
                where t.ord < v.ord or t.ord < d.withdrawn"""
        )
    return {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize("seed", range(6))
async def test_the_log_alone_gives_the_tables_row_by_row(seed: int, database: str, other_database: str, tmp_path: Path) -> None:
    pool, fresh = await open_pool(database, size=4, name="test"), await open_pool(other_database, size=4, name="test")
    try:
        world = World(tmp_path, [], seed, Bounds(), tables_ledger=PgLedger(pool, GENERATION), revisions=PgRevisions(pool))
        world.embedder.moody = False
        await world.create_generation()
        await play(world, history_of(seed))
        assert await residue(pool) == {}
        facts = folds(await Log.of(world), seed)
        for number, (way, ordered) in enumerate(facts.items()):
            if number % 2 == seed % 2:
                continue
            await empty(fresh)
            await fold(PgLedger(fresh, GENERATION), ordered)
            assert await checksum(fresh, everything=True) == await checksum(pool, everything=True), way
            assert await rows(fresh) == await rows(pool), way
            assert await residue(fresh) == {}, way
    finally:
        await close_pool(pool)
        await close_pool(fresh)


async def rows(pool: Pool) -> dict[str, set[tuple[Any, ...]]]:
    """Whether visible or not: every row of a document's revisions, by its keys; what became of them, and where each part stood in the log."""
    found = {}
    for kind, table in TABLES.items():
        places = ", fact_id, log_topic, log_partition, log_offset" if kind in (SettledRow, TextRow) else ""
        keys = ", ".join([*list(table.columns)[: table.keys]])
        found[table.name] = await pool.fetch(f"select document_id, ord{places}{', ' + keys if keys else ''} from {table.name}")
    found["documents"] = await pool.fetch("select id, latest, withdrawn, revision, accepted_id from documents")
    found["amended"] = await pool.fetch(
        "select d.id, d.title, d.collection, d.tags, d.metadata, d.amended from documents d join visible v on v.document_id = d.id"
    )
    found["amendments"] = await pool.fetch("select document_id, ord, accepted_id, said, by_revision from document_amendments")
    found["states"] = await pool.fetch("select document_id, ord, state, unchanged, visible, chunks from revision_states")
    found["dead_letters"] = await pool.fetch("select event_id, stage, code, log_topic, log_offset from dead_letters")
    return {name: {tuple(map(str, row)) for row in each} for name, each in found.items()}


async def empty(pool: Pool) -> None:
    names = [
        "documents",
        "document_revisions",
        "document_amendments",
        "handled",
        "job_stages",
        "chunk_history",
        "dead_letters",
        "live_generation",
        "generations",
    ]
    dropped = await pool.fetch("select inhrelid::regclass::text as name from pg_inherits join pg_class on oid = inhrelid where relkind = 'r'")
    for row in dropped:
        await pool.execute(f"drop table {row['name']}")
    await pool.execute(f"truncate {', '.join(names)} cascade")
