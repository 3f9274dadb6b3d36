"""`anabranch ingest`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from anabranch.cli.exits import FAILED, OK, PARTLY
from anabranch.cli.options import Remote
from anabranch.cli.output import print_json, say

if TYPE_CHECKING:
    from anabranch.ingestion import Ingestion

Flag = Parameter(negative="")
UNITS = {"s": 1, "m": 60, "h": 3600}


def ingest(
    *paths: str,
    collection: str | None = None,
    tag: Annotated[tuple[str, ...], Flag] = (),
    glob: str = "*",
    recursive: Annotated[bool, Flag] = False,
    force: Annotated[bool, Flag] = False,
    wait: Annotated[bool, Flag] = False,
    timeout: str = "10m",
    concurrency: int = 4,
    common: Remote = Remote(),  # noqa: B008
) -> int:
    """Take in documents. Exits 5 when some failed, 1 when some had not ended in time. Without --wait it returns once the log has them.

    Parameters
    ----------
    paths
        Files, folders, http(s) addresses, or - for stdin.
    collection
        Name under which they can be filtered.
    tag
        May be given several times.
    glob
        Of a folder, only names like this.
    recursive
        Folders within folders, too.
    force
        Process again even if nothing changed.
    wait
        Until each is searchable or failed.
    timeout
        How long to wait at most: 90s, 10m, 2h.
    concurrency
        Uploads at once.
    """
    from anabranch.ingestion import Ingestion, gather_sources

    sources = gather_sources(paths, glob=glob, recursive=recursive)
    job = Ingestion(sources, collection=collection, tags=tag, force=force, wait_s=seconds(timeout) if wait else None, concurrency=max(1, concurrency))
    report = asyncio.run(_run(job, common))
    if common.json:
        print_json(report)
    else:
        counts = report["counts"]
        accepted = sum(document["state"] == "accepted" for document in report["documents"])
        say(", ".join(f"{number} {name}" for name, number in {**counts, "accepted": accepted}.items() if number) or "nothing to do", quiet=common.quiet)
    if wait and any(not source.ended for source in sources):
        say(f"not all documents ended within {timeout}; they go on: `anabranch documents list` says where they are")
        return FAILED
    return PARTLY if report["counts"]["failed"] else OK


async def _run(job: Ingestion, common: Remote) -> dict[str, Any]:
    from anabranch.cli.progress import watching
    from anabranch.cli.serving import api_client

    async with api_client(common, stages=("all",)) as client:
        with watching(job, quiet=common.quiet, plain=common.no_color):
            return await job.run(client)


def seconds(text: str) -> float:
    """`90s`, `10m`, `2h`, or a number of seconds."""
    from schemas.errors import ConfigurationError

    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    try:
        return float(number) * UNITS[unit]
    except ValueError:
        raise ConfigurationError(f"--timeout {text}: no duration", remedy="Write 90s, 10m or 2h.") from None
