"""All checks, in the order in which a person would do them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from anabranch.doctor import connections, machine, waiting
from anabranch.doctor.findings import Check, Finding, run_check
from anabranch.remedies import missing_scheme
from anabranch.settings import Settings


async def examine_server(url: str) -> Sequence[Finding]:
    """Check a server elsewhere, by its own account."""
    url = url.rstrip("/")
    return await run_check(
        "server", partial(connections.server_at, url, url, f"Start it with `anabranch up`, or correct --server. {missing_scheme(url)}".strip())
    )


async def examine(settings: Settings) -> Sequence[Finding]:
    checks: dict[str, Check] = {
        "python": machine.python,
        "packages": machine.distributions,
        "local models": machine.offline_models,
        "embedded Postgres": partial(machine.postgres_binaries, settings),
        "data folder": partial(machine.data_folder, settings),
        "open files": machine.open_files,
        "parser confinement": machine.parser_confinement,
        "settings file": partial(machine.settings_file, settings),
        "Java for Kafka": machine.kafka_tools,
        "server": partial(connections.server, settings),
        "Postgres": partial(waiting.whose_lock, settings, partial(connections.database, settings)),
        "locks": partial(waiting.locks, settings),
        "Kafka": partial(connections.kafka, settings),
        "stages": partial(waiting.whose_lock, settings, partial(waiting.stages, settings)),
        "blob store": partial(connections.blobs, settings),
        "models": partial(connections.models, settings),
    }
    return [finding for name, check in checks.items() for finding in await run_check(name, check)]
