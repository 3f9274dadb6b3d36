"""How often an event is attempted: by the setting of a worker, and if it kills each worker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from schemas.errors import TransientError
from schemas.ports.engines import TextEmbedding
from tests.fakes.null_embedder import NullEmbedder
from tests.support.eventually import eventually
from tests.support.log_backends import long_on_kafka
from tests.support.pipeline import run_pipeline
from tests.support.simulated_pipeline import LineParser
from tests.support.worker_group import WorkerGroup, worker_group


class FailingEmbedder(NullEmbedder):
    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        raise TransientError("not yet")


@pytest.mark.parametrize("attempts", [1, 3])
async def test_event_is_dead_lettered_after_attempts_of_the_setting(
    database: str, tmp_path: Path, attempts: int
) -> None:
    settings = load_settings(data_dir=tmp_path, sets=[f"worker.attempts={attempts}"])
    overrides = Overrides(parser=LineParser(), embedder=FailingEmbedder(dimension=8))
    async with run_pipeline(tmp_path, database, overrides, settings) as at_work:
        await at_work.push({"doc": "A heron flies."})

        async def find_attempts() -> int | None:
            query = "select attempts from dead_letters where stage = 'embed'"
            found: int | None = await at_work.pool.fetchval(query)
            return found

        assert await eventually(find_attempts) == attempts


__all__ = ["worker_group"]

ORDINARY_DOCUMENTS: dict[str, str | None] = {
    f"doc-{number}": f"An ordinary document {number}" for number in range(12)
}
POISON_WORD = "nightshade"


@long_on_kafka
async def test_event_that_kills_workers_is_dead_lettered(worker_group: WorkerGroup) -> None:
    names = list(ORDINARY_DOCUMENTS)
    first = await worker_group.start_worker(deadly=POISON_WORD)
    texts = ORDINARY_DOCUMENTS | {"deadly": f"Some {POISON_WORD} is here"}
    await worker_group.push_texts(
        {name: texts[name] for name in [*names[:6], "deadly", *names[6:]]}
    )
    workers = [first]
    while True:
        worker = workers[-1]

        async def over(worker=worker) -> bool:  # type: ignore[no-untyped-def]
            return worker.process.poll() is not None or bool(await fetch_dead_letters(worker_group))

        await eventually(over)
        if await fetch_dead_letters(worker_group):
            break
        assert len(workers) < 6
        workers.append(await worker_group.start_worker(deadly=POISON_WORD))
    *killed, last = [worker.process.poll() is not None for worker in workers]
    assert all(killed) and not last
    # With the log in the database the first one may die in the chain, of which ingress is charged;
    # the others at stage `embed`.
    assert len(killed) in ((3, 4) if worker_group.settings.log_kind == "postgres" else (3,))
    await worker_group.wait_until_idle()
    assert await fetch_dead_letters(worker_group) == [("WORKER_LOST", "embed")]
    assert await worker_group.pool.fetchval(
        "select count(*) from visible where generation = 'g1'"
    ) == len(ORDINARY_DOCUMENTS)


async def fetch_dead_letters(worker_group: WorkerGroup) -> list[tuple[str, str]]:
    return [
        (row["code"], row["stage"])
        for row in await worker_group.pool.fetch("select code, stage from dead_letters")
    ]
