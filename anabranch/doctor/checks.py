"""All checks of `anabranch doctor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from anabranch.config.settings import Settings
from anabranch.doctor import connections, machine, stalls
from anabranch.doctor.check_runner import Check, run_check
from schemas.findings import Finding


async def run_checks(settings: Settings) -> Sequence[Finding]:
    """Run all checks of this machine and its connections."""
    checks: dict[str, Check] = {
        **_list_machine_checks(settings),
        "server": partial(connections.check_server, settings),
        **_list_connection_checks(settings),
    }
    return await _run(checks)


async def run_checks_of_server(settings: Settings) -> Sequence[Finding]:
    """Run the checks of a server that this process is part of."""
    return await _run(_list_machine_checks(settings) | _list_connection_checks(settings))


async def _run(checks: Mapping[str, Check]) -> Sequence[Finding]:
    return [finding for name, check in checks.items() for finding in await run_check(name, check)]


def _list_machine_checks(settings: Settings) -> dict[str, Check]:
    return {
        "python": machine.check_python,
        "packages": machine.check_distributions,
        "local models": machine.check_offline_models,
        "embedded Postgres": partial(machine.check_postgres_binaries, settings),
        "data folder": partial(machine.check_data_folder, settings),
        "open files": machine.check_open_file_limit,
        "parser confinement": machine.check_parser_confinement,
        "settings file": partial(machine.check_settings_file, settings),
        "Supabase": partial(machine.check_supabase_names, settings),
        "Java for Kafka": machine.check_kafka_tools,
    }


def _list_connection_checks(settings: Settings) -> dict[str, Check]:
    return {
        "Postgres": partial(
            stalls.run_naming_lock_holder, settings, partial(connections.check_database, settings)
        ),
        "locks": partial(stalls.check_locks, settings),
        "Kafka": partial(connections.check_kafka, settings),
        "stages": partial(
            stalls.run_naming_lock_holder, settings, partial(stalls.check_stages, settings)
        ),
        "blob store": partial(connections.check_blobs, settings),
        "models": partial(connections.check_models, settings),
        "local chat model": partial(connections.check_local_models, settings),
    }
