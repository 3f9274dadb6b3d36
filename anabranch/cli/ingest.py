"""`anabranch ingest`."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from anabranch.cli.exits import FAILED, OK, PARTLY
from anabranch.cli.interrupted import going_on
from anabranch.cli.options import Remote
from anabranch.cli.output import print_table, say

if TYPE_CHECKING:
    from anabranch.ingestion import Ingestion, Source

Flag = Parameter(negative="")
UNITS = {"s": 1, "m": 60, "h": 3600}


def ingest(
    *paths: str,
    collection: str | None = None,
    tag: Annotated[tuple[str, ...], Flag] = (),
    reader: Annotated[tuple[str, ...], Flag] = (),
    glob: str = "*",
    recursive: Annotated[bool, Flag] = False,
    force: Annotated[bool, Flag] = False,
    wait: Annotated[bool, Flag] = False,
    timeout: str = "10m",
    concurrency: Annotated[int, Parameter(validator=Number(gte=1))] = 4,
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
    reader
        User or group that may read them: user:NAME or group:NAME, several times for several. Without any, everyone in the tenant may.
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

    patience = seconds(timeout)
    sources = gather_sources(paths, glob=glob, recursive=recursive)
    job = Ingestion(sources, collection=collection, tags=tag, readers=reader, force=force, wait_s=patience if wait else None, concurrency=concurrency)
    report = asyncio.run(_run(job, common))
    if common.json:
        common.show(report)
    _tell_failures(sources)
    if not common.json:
        say(summary(sources), quiet=common.quiet)
    if wait and any(not source.ended for source in sources):
        say(f"not all documents ended within {timeout}; they go on while `anabranch up` runs, and `anabranch documents list` says how far they are")
        return FAILED
    return PARTLY if report["counts"]["failed"] else OK


async def _run(job: Ingestion, common: Remote) -> dict[str, Any]:
    from anabranch.cli.progress import watching
    from anabranch.cli.serving import beginning_client, tell_who_goes_on

    async with beginning_client(common) as client:
        with going_on(lambda: _told_so_far(job, common)), watching(job, quiet=common.quiet, plain=common.no_color):
            report = await job.run(client)
        if job.wait_s is None and any(source.job for source in job.sources):
            tell_who_goes_on(client, common)
        return report


def _told_so_far(job: Ingestion, common: Remote) -> str:
    """What was accepted is data, also where the rest was not."""
    accepted = [source for source in job.sources if source.job]
    if common.json:
        common.show(job.report())
    elif accepted:
        print_table(("path", "document_id", "state"), [(source.path, source.document_id, source.state) for source in accepted])
    return f"{len(accepted)} of {len(job.sources)} documents were accepted; run the same command again for the others: nothing is done twice for those"


def summary(sources: Sequence[Source]) -> str:
    counts = Counter(source.outcome for source in sources)
    return ", ".join(f"{number} {outcome}" for outcome, number in counts.most_common()) or "nothing to do"


def _tell_failures(sources: Sequence[Source]) -> None:
    """Also where all else is kept quiet."""
    for source in sources:
        if source.error:
            say(f"error: {source.path}: {source.error['detail']} [{source.error['code']}]")
            if source.error.get("remedy"):
                say(f"  → {source.error['remedy']}")


def seconds(text: str) -> float:
    """`90s`, `10m`, `2h`, or a number of seconds. Raises ConfigurationError."""
    from schemas.errors import ConfigurationError

    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if found is None:
        raise ConfigurationError(f"--timeout {text}: no duration", remedy="Write 90s, 10m or 2h.")
    return float(found[1]) * UNITS[found[2] or "s"]
