"""`anabranch ingest`."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from anabranch.cli.errors import FAILED, OK, PARTIAL_FAILURE
from anabranch.cli.options import REMOTE, RemoteOptions, parse_metadata
from anabranch.cli.output import (
    CONTINUES_WHILE_RUNNING,
    print_stderr,
    resume_hint,
    to_single_line,
)
from schemas.errors import ConfigurationError

if TYPE_CHECKING:
    from anabranch.cli.ingest_batch import IngestBatch, IngestItem

SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600}
_TIMED_OUT = (
    "timed out after {} with documents still in progress; they continue while `anabranch up` runs. "
    "Show their state with `anabranch documents list`"
)


def ingest(
    *paths: str,
    collection: str | None = None,
    tag: tuple[str, ...] = (),
    reader: tuple[str, ...] = (),
    metadata: tuple[str, ...] = (),
    glob: str = "*",
    recursive: bool = False,
    include: tuple[str, ...] = (),
    force: bool = False,
    wait: bool = False,
    timeout: str = "10m",
    concurrency: Annotated[int, Parameter(validator=Number(gte=1))] = 16,
    common: RemoteOptions = REMOTE,
) -> int:
    """Ingest documents. Returns once the log has them, unless --wait is given.

    Exits 5 if some documents failed, 1 on timeout.

    Args:
        paths: Files, folders, http(s) URLs, or - for stdin.
        collection: Collection of the documents, for filters.
        tag: Tag of the documents. Repeatable.
        reader: User or group that may read the documents: user:NAME or group:NAME. Repeatable.
            Default: everyone in the tenant.
        metadata: Metadata of the documents, for filters: key=value, JSON or text. Repeatable.
        glob: Only include files of a folder that match this glob pattern.
        recursive: Include subfolders.
        include: Also send files of a folder that match this pattern and are skipped otherwise:
            code, locks, temporary and system files. Repeatable.
        force: Process documents again even if they are unchanged.
        wait: Wait until each document is searchable or failed.
        timeout: Maximum time to wait: 90s, 10m, 2h.
        concurrency: Number of concurrent uploads.
    """
    from anabranch.cli.ingest_batch import IngestBatch, expand_paths

    timeout_s = parse_duration_s(timeout)
    items, skipped = expand_paths(paths, glob=glob, recursive=recursive, include=include)
    if skipped:
        common.print_note(_format_skipped(skipped))
    batch = IngestBatch(
        items,
        collection=collection,
        tags=tag,
        readers=reader,
        metadata=parse_metadata(metadata),
        force=force,
        wait_s=timeout_s if wait else None,
        concurrency=concurrency,
        is_local=common.server is None,
    )
    report = asyncio.run(_run_batch(batch, common))
    is_json = common.print_if_json(report | {"skipped": skipped})
    for item in items:
        if item.error:  # also with --quiet
            print_stderr(f"error: {item.path}: {item.error['detail']} [{item.error['code']}]")
            if item.error.get("remedy"):
                print_stderr(f"  → {item.error['remedy']}")
    if not is_json:
        common.print_note(format_summary(items))
    if wait and any(not item.is_finished for item in items):
        print_stderr(_TIMED_OUT.format(timeout))
        return FAILED
    return PARTIAL_FAILURE if report["counts"]["failed"] else OK


async def _run_batch(batch: IngestBatch, common: RemoteOptions) -> dict[str, Any]:
    from anabranch.cli.ingest_batch import show_progress
    from anabranch.cli.server_connection import open_or_initialize_client, warn_if_server_stops

    async with open_or_initialize_client(common) as client:
        with (
            resume_hint(lambda: _report_accepted(batch, common)),
            show_progress(batch, quiet=common.quiet, plain=common.no_color),
        ):
            report = await batch.run(client)
        if batch.wait_s is None and any(item.job_id for item in batch.items):
            warn_if_server_stops(client, common)
        return report


def _report_accepted(batch: IngestBatch, common: RemoteOptions) -> str:
    """Print the accepted documents as the result, and return the hint for the others."""
    accepted = [item for item in batch.items if item.job_id]
    if not common.print_if_json(batch.build_report()) and accepted:
        common.print_table(
            ("path", "document_id", "state"),
            [(item.path, item.document_id, item.state) for item in accepted],
        )
    unsent = sum(not item.job_id and not item.is_finished for item in batch.items)
    if unsent:
        return (
            f"{len(accepted)} of {len(batch.items)} documents were accepted; run the same command "
            f"again for the other {unsent}: accepted documents are not processed twice"
        )
    unfinished = sum(not item.is_finished for item in accepted)
    return (
        f"{format_summary(batch.items)}; {unfinished} in progress, which "
        f"{CONTINUES_WHILE_RUNNING}. List them with `anabranch documents list`"
        if unfinished
        else format_summary(batch.items)
    )


def _format_skipped(skipped: Sequence[str]) -> str:
    names = [to_single_line(Path(path).name) for path in skipped[:3]]
    noun = "file that is no document" if len(skipped) == 1 else "files that are no documents"
    return (
        f"skipped {len(skipped)} {noun}: {', '.join(names)}{', …' if len(skipped) > 3 else ''}; "
        "add --include PATTERN to send them"
    )


def format_summary(items: Sequence[IngestItem]) -> str:
    counts = Counter(item.label for item in items)
    return (
        ", ".join(f"{number} {outcome}" for outcome, number in counts.most_common())
        or "nothing to do"
    )


def parse_duration_s(text: str) -> float:
    """Parse `90s`, `10m`, `2h`, or a number of seconds. Raises ConfigurationError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if match is None:
        raise ConfigurationError(
            f"Invalid duration --timeout {text}.", remedy="Use a number and a unit: 90s, 10m or 2h."
        )
    return float(match[1]) * SECONDS_PER_UNIT[match[2] or "s"]
