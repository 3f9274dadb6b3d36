"""Checks of connections: database, log, blobs, model servers, the server of the data folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2

from anabranch.config.engines import open_blob_store
from anabranch.config.loader import MODEL_SECTIONS
from anabranch.config.settings import ModelSettings, Settings
from anabranch.doctor.check_runner import judge
from anabranch.kafka.settings import build_kafka_settings
from anabranch.kafka.topic_checks import check_topics, explain_unreadable_settings
from anabranch.local_models import find_local_models
from anabranch.process.data_folder import find_server
from schemas.errors import ConfigurationError
from schemas.findings import Finding
from sql.catalog.listings import PgListings
from sql.database import Pool, build_lock_timeout_settings, use_pool
from sql.index.generations import PgGenerations
from sql.operations.monitoring import DirectAccess, fetch_direct_access, inspect_database

PROBE_KEY = "_doctor/probe"
READY_TIMEOUT_S = 10.0
"""Twice the time that the server allows for its own dependency checks."""
LOCK_WAIT_S = 2.0
"""Longest wait for a locked table."""


async def check_server(settings: Settings) -> Sequence[Finding]:
    running = find_server(settings.data_dir)
    if running is None:
        return [Finding("server", "pass", "none is running in the data folder")]
    return await check_server_at(
        running.url, f"{running.url} (pid {running.pid})", "Check its log, or restart it."
    )


async def check_server_at(url: str, label: str, remedy: str) -> Sequence[Finding]:
    """Report the server's failing dependencies; `remedy` is the fix for an unreachable server."""
    try:
        async with httpx2.AsyncClient(timeout=READY_TIMEOUT_S) as client:
            dependencies = (await client.get(f"{url}/readyz")).json()["dependencies"]
    except httpx2.HTTPError as error:
        detail = f"{label} does not answer: {error or type(error).__name__}"
        return [Finding("server", "fail", detail, remedy)]
    except (ValueError, KeyError, TypeError):
        return [Finding("server", "fail", f"{label} is not an Anabranch server", "Check --server.")]
    return [
        Finding(f"server: {name}", "fail", dependency["detail"], dependency["remedy"])
        for name, dependency in dependencies.items()
        if not dependency["ok"]
    ] or [Finding("server", "pass", f"ready at {label}")]


def find_dsn(settings: Settings) -> str | None:
    """Return the configured database URL, or that of the running embedded server, or None."""
    running = find_server(settings.data_dir)
    return (
        settings.database.url.get_secret_value()
        if settings.database.url
        else running.database_url
        if running
        else None
    )


async def check_database(settings: Settings) -> Sequence[Finding]:
    dsn = find_dsn(settings)
    if dsn is None:
        return []
    state = await inspect_database(dsn)
    has_vector = state.vector is not None and tuple(map(int, state.vector.split(".")[:2])) >= (0, 8)
    vector = state.vector or "the extension is not available"
    pending = f"{len(state.pending)} pending" if state.pending else "all applied"
    findings = [
        judge(
            "Postgres", state.version >= 15, f"version {state.version}", "Use Postgres 15 or later."
        ),
        judge("pgvector", has_vector, vector, "Install pgvector 0.8 or later on the server."),
        judge("migrations", not state.pending, pending, "anabranch db migrate", "warn"),
    ]
    # The contents can only be read from migrated tables.
    return findings if state.pending else [*findings, *await _check_contents(dsn)]


def use_doctor_pool(dsn: str) -> AbstractAsyncContextManager[Pool]:
    """Open a pool whose queries wait for locks only shortly."""
    settings = build_lock_timeout_settings(LOCK_WAIT_S)
    return use_pool(dsn, size=2, name="anabranch doctor", settings=settings)


async def _check_contents(dsn: str) -> Sequence[Finding]:
    async with use_doctor_pool(dsn) as pool:
        live = await PgGenerations(pool).fetch_live()
        dead_letters, next_cursor = await PgListings(pool).list_dead_letters(
            "default", stage=None, after=None, limit=100
        )
        access = await fetch_direct_access(pool)
    remedy = "Start a worker, which creates the first generation."
    return [
        judge("generation", bool(live), live.name if live else "none yet", remedy, "warn"),
        _summarize_dead_letters(dead_letters, bool(next_cursor)),
        *_check_direct_access(access),
    ]


def _check_direct_access(access: DirectAccess) -> list[Finding]:
    """Check row-level security for clients that read tables directly, such as Supabase's."""
    if access.unsecured:
        detail = (
            f"row-level security is off for {', '.join(access.unsecured)}: clients with direct "
            "access see every row"
        )
        fix = (
            "Turn it on with `select anabranch.secure_rows('TABLE')`, or revoke select from "
            "anabranch_reader, authenticated, anon and public."
        )
        return [Finding("row-level security", "fail", detail, fix)]
    if not access.is_granted:
        problem = (
            "has no grants"
            if access.has_role
            else "is missing, because the database user may not create roles"
        )
        create_role_hint = (
            ""
            if access.has_role
            else "run `create role anabranch_reader nologin` as an administrator, then "
        )
        fix = (
            f"To permit direct access, {create_role_hint}run `select "
            "anabranch.grant_direct_access()` as the owner of the tables."
        )
        detail = f"role anabranch_reader for direct access {problem}"
        return [Finding("row-level security", "warn", detail, fix)]
    return [Finding("row-level security", "pass", "on for all tables with direct access")]


def _summarize_dead_letters(dead_letters: Sequence[Mapping[str, Any]], has_more: bool) -> Finding:
    if not dead_letters:
        return Finding("dead letters", "pass", "0")
    latest = dead_letters[0]
    detail = (
        f"{len(dead_letters)}{'+' if has_more else ''}; the latest at stage {latest['stage']}: "
        f"{latest['detail']} [{latest['code']}]"
    )
    fix = (
        "List failed documents with `anabranch documents list --state failed`, events with "
        "`anabranch dlq list`."
    )
    return Finding("dead letters", "warn", detail, fix)


async def check_kafka(settings: Settings) -> Sequence[Finding]:
    if settings.log_kind != "kafka":
        return []
    comparisons = await check_topics(settings)
    problems = [
        Finding(
            f"Kafka topic {comparison.topic}", "warn", comparison.problem, comparison.remedy or ""
        )
        for comparison in comparisons
        if comparison.problem
    ]
    if unreadable_settings := explain_unreadable_settings(comparisons):
        problems.append(Finding("Kafka topics", "warn", *unreadable_settings))
    topics = problems or [
        Finding("Kafka", "pass", f"{len(comparisons)} topics at {settings.kafka.bootstrap_servers}")
    ]
    return [
        *topics,
        *(
            await _check_kafka_acls(settings)
            or [Finding("Kafka ACLs", "pass", "only this program may write its topics")]
        ),
    ]


async def _check_kafka_acls(settings: Settings) -> Sequence[Finding]:
    """Report principals other than this program's that may write its topics."""
    from anabranch.kafka.topic_checks import find_foreign_writers
    from streams.kafka.kafka_log import KafkaLog

    log = KafkaLog(build_kafka_settings(settings.kafka))
    try:
        grants = await log.fetch_grants()
    except ConfigurationError as error:
        remedy = "Grant this principal Describe on the cluster."
        return [Finding("Kafka ACLs", "warn", f"unknown: {error.detail}", remedy)]
    finally:
        await log.close()
    if grants is None:
        detail = "the cluster has no authorizer: every client may write every topic"
        remedy = "Configure an authorizer on the brokers, then apply `anabranch topics acls`."
        return [Finding("Kafka ACLs", "warn", detail, remedy)]
    return [
        Finding(
            "Kafka ACLs",
            "warn",
            f"{principal} may write {', '.join(topics)}",
            "Remove the ACL, or add the principal to ANABRANCH_KAFKA__PRINCIPALS if it is the "
            "API's or a worker's.",
        )
        for principal, topics in find_foreign_writers(settings, grants).items()
    ]


async def check_blobs(settings: Settings) -> Sequence[Finding]:
    if not settings.storage.url and not settings.data_dir.exists():
        return []
    store = open_blob_store(settings)
    await store.put(PROBE_KEY, b"probe")
    is_intact = await store.get(PROBE_KEY) == b"probe"
    await store.delete([PROBE_KEY])
    fault = "a stored blob was read back with other content"
    return [judge("blob store", is_intact, "put, get and delete work" if is_intact else fault, "")]


async def check_models(settings: Settings) -> Sequence[Finding]:
    sections = {name: getattr(settings, name) for name in MODEL_SECTIONS}
    return [await _check_model(name, model) for name, model in sections.items() if model.base_url]


async def check_local_models(settings: Settings) -> Sequence[Finding]:
    """Offer the model servers of this machine if no server writes answers yet."""
    servers = [] if settings.chat.base_url else await find_local_models()
    return [
        Finding(
            "local chat model",
            "pass",
            f"{server.url} has {', '.join(server.models[:5])}; "
            "`anabranch up --local-model` lets it write answers",
        )
        for server in servers
    ]


async def _check_model(section: str, model: ModelSettings) -> Finding:
    # Any status but 401 and 403 passes: servers differ in whether they implement /models.
    headers = (
        {"Authorization": f"Bearer {model.api_key.get_secret_value()}"} if model.api_key else {}
    )
    try:
        async with httpx2.AsyncClient(timeout=10) as client:
            status = (
                await client.get(f"{str(model.base_url).rstrip('/')}/models", headers=headers)
            ).status_code
    except httpx2.HTTPError as error:
        detail = f"{model.base_url}: {error or type(error).__name__}"
        return Finding(f"model: {section}", "fail", detail, "Start the server, or check the URL.")
    return judge(
        f"model: {section}",
        status not in (401, 403),
        f"{model.base_url} answers {status}",
        f"Check ANABRANCH_{section.upper()}__API_KEY.",
    )
