"""A random history over real workers: changes that their source numbers lie scattered over the log, out of order and some of them twice, and a worker dies over them."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from dataclasses import dataclass, field, replace
from pathlib import Path

from anabranch.composition.storage import kafka_of
from schemas.events import DocumentAmended, DocumentReceived, DocumentWithdrawn
from schemas.records import Record
from sql.residue import residue
from streams.codec import Codec
from streams.submission import submission
from tests.both_logs import on_both_logs
from tests.integration.cluster import Cluster
from tests.integration.mortals import House, environment, house, until
from tests.journey.served import anabranch
from tests.pipeline import TIME, change
from tests.property.test_changes import LINES, LONG, SHORT

__all__ = ["house"]

SEED, DOCUMENTS, CHANGES = 11, 12, 7
TEXTS = [LONG, SHORT, LINES[0], "\n".join(LINES[:20])]


@dataclass
class History:
    """`said` is what each document's source said last: its text, or None where it was withdrawn. A text names its document and its number."""

    mood: random.Random
    said: dict[str, str | None] = field(default_factory=dict)

    async def records(self) -> list[Record]:
        """Keys are anything, so that a document's changes lie in any partition."""
        found = [await self._change(f"doc-{place}", number) for place in range(DOCUMENTS) for number in range(1, CHANGES + 1)]
        found += self.mood.sample(found, len(found) // 6)
        self.mood.shuffle(found)
        return [replace(record, key=str(self.mood.random()).encode()) for record in found]

    async def _change(self, name: str, number: int) -> Record:
        record = await submission(self._said(name, number), f"{name}/{number}", source="shop", time=TIME, codec=Codec())
        return replace(record, headers={**record.headers, "ce_sequence": str(number).encode()})

    def _said(self, name: str, number: int) -> DocumentReceived | DocumentAmended | DocumentWithdrawn:
        if self.mood.random() < 0.2:
            return DocumentAmended(external_id=name, tags=[f"t{number}"])
        self.said[name] = None if self.mood.random() < 0.3 else f"{name} in edition {number}\n{self.mood.choice(TEXTS)}"
        return change(name, self.said[name])


@on_both_logs
async def test_after_a_random_history_over_two_workers_nothing_is_left_behind_and_what_was_said_last_answers(house: House, tmp_path: Path) -> None:
    history = History(random.Random(SEED))
    records = await history.records()
    first, _ = await house.start(), await house.start()
    if house.settings.log_kind == "kafka":
        crew = Cluster(kafka_of(house.settings.kafka), house.storage.dsn, tmp_path)
        await asyncio.to_thread(crew.await_members, "anabranch.receive", 2)
    half = len(records) // 2
    await house.storage.log.append(records[:half])
    await until(lambda: shown(house))
    first.end(signal.SIGKILL)
    await house.start()
    await house.storage.log.append(records[half:])
    await house.quiet()
    assert await shown(house) == {name: text for name, text in history.said.items() if text is not None}
    assert {place: rows for place, rows in (await residue(house.pool, settled=True)).items() if rows} == {}
    assert await house.pool.fetchval("select count(*) from dead_letters") == 0
    told = anabranch("db", "residue", "--settled", "--json", **environment(house.sets))
    assert (told.returncode, json.loads(told.stdout)["rows"]) == (0, 0), told.stderr


async def shown(house: House) -> dict[str, str]:
    """External id → the text that answers."""
    query = (
        "select d.external_id, t.markdown from visible v join revision_texts t using (generation, document_id, ord) join documents d on d.id = v.document_id"
    )
    return {row["external_id"]: row["markdown"] for row in await house.pool.fetch(query)}
