"""An event that kills every worker that works on it, with SIGKILL."""

from __future__ import annotations

from tests.both_logs import on_both_logs
from tests.integration.mortals import House, house, until

__all__ = ["house"]

NEIGHBORS: dict[str, str | None] = {f"doc-{number}": f"An ordinary document {number}" for number in range(12)}
DEADLY = "nightshade"


@on_both_logs
async def test_event_that_kills_three_workers_is_dead_lettered(house: House) -> None:
    names = list(NEIGHBORS)
    first = await house.start(deadly=DEADLY)
    texts = NEIGHBORS | {"deadly": f"Some {DEADLY} is here"}
    await house.push({name: texts[name] for name in [*names[:6], "deadly", *names[6:]]})
    workers = [first]
    while True:
        worker = workers[-1]

        async def over(worker=worker) -> bool:  # type: ignore[no-untyped-def]
            return worker.process.poll() is not None or bool(await buried(house))

        await until(over)
        if await buried(house):
            break
        assert len(workers) < 5
        workers.append(await house.start(deadly=DEADLY))
    assert [worker.process.poll() is not None for worker in workers] == [True, True, True, False]
    await house.quiet()
    assert await buried(house) == [("WORKER_LOST", "embed")]
    assert await house.pool.fetchval("select count(*) from visible where generation = 'g1'") == len(NEIGHBORS)


async def buried(house: House) -> list[tuple[str, str]]:
    return [(row["code"], row["stage"]) for row in await house.pool.fetch("select code, stage from dead_letters")]
