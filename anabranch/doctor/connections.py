"""What is connected to: database, log, blobs, model servers, the server in the data folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

from anabranch.composition.storage import open_blob_store
from anabranch.config.settings import ModelSettings, Settings
from anabranch.doctor.findings import Finding
from anabranch.kafka.settings import build_kafka_settings
from anabranch.kafka.topic_checks import check_topics, explain_unreadable_settings
from anabranch.process.data_folder import find_server
from schemas.errors import ConfigurationError
from sql.generations import PgGenerations
from sql.inspection import DirectAccess, fetch_direct_access, inspect_database
from sql.listings import PgListings
from sql.pool import build_lock_timeout_settings, close_pool, open_pool

PROBE_KEY = "_doctor/probe"
READY_TIMEOUT_S = 10.0
"""The server itself waits for half as long for what it looks at."""
LOCK_WAIT_S = 2.0
"""So long a table is waited for that somebody has locked."""


async def check_server(settings: Settings) -> Sequence[Finding]:
    running = find_server(settings.data_dir)
    if running is None:
        return [Finding("server", "pass", "none runs in the data folder", "")]
    return await check_server_at(running.url, f"{running.url} (pid {running.pid})", "See its log, or start it again.")


async def check_server_at(url: str, label: str, remedy: str) -> Sequence[Finding]:
    """What the server tells of its dependencies; `remedy` is for one that does not answer."""
    try:
        async with httpx2.AsyncClient(timeout=READY_TIMEOUT_S) as client:
            dependencies = (await client.get(f"{url}/readyz")).json()["dependencies"]
    except httpx2.HTTPError as error:
        return [Finding("server", "fail", f"{label} does not answer: {error or type(error).__name__}", remedy)]
    except (ValueError, KeyError, TypeError):
        return [Finding("server", "fail", f"{label} is no Anabranch", "Correct --server.")]
    failing = {name: dependency for name, dependency in dependencies.items() if not dependency["ok"]}
    if failing:
        return [Finding(f"server: {name}", "fail", dependency["detail"], dependency["remedy"]) for name, dependency in failing.items()]
    return [Finding("server", "pass", f"ready at {label}")]


def find_dsn(settings: Settings) -> str | None:
    """The database that is named, or that runs in the data folder."""
    running = find_server(settings.data_dir)
    return settings.database.url.get_secret_value() if settings.database.url else running.database_url if running else None


async def check_database(settings: Settings) -> Sequence[Finding]:
    """Nothing is started for this: an embedded server that does not run is not asked."""
    dsn = find_dsn(settings)
    if dsn is None:
        return []
    state = await inspect_database(dsn)
    findings = [
        Finding("Postgres", "pass" if state.version >= 15 else "fail", f"version {state.version}", "" if state.version >= 15 else "Use Postgres 15 or later.")
    ]
    findings.append(_check_pgvector(state.vector))
    findings.append(
        Finding(
            "migrations",
            "warn" if state.pending else "pass",
            f"{len(state.pending)} pending" if state.pending else "all applied",
            "anabranch db migrate" if state.pending else "",
        )
    )
    return findings if state.pending else [*findings, *await _check_contents(dsn)]


def _check_pgvector(version: str | None) -> Finding:
    if version is None:
        return Finding("pgvector", "fail", "the extension is not available", "Install pgvector 0.8 or later on the server.")
    is_supported = tuple(map(int, version.split(".")[:2])) >= (0, 8)
    return Finding("pgvector", "pass" if is_supported else "fail", version, "" if is_supported else "Install pgvector 0.8 or later.")


async def _check_contents(dsn: str) -> Sequence[Finding]:
    pool = await open_pool(dsn, size=2, name="anabranch doctor", settings=build_lock_timeout_settings(LOCK_WAIT_S))
    try:
        live = await PgGenerations(pool).fetch_live()
        dead_letters, next_cursor = await PgListings(pool).list_dead_letters("default", stage=None, after=None, limit=100)
        access = await fetch_direct_access(pool)
    finally:
        await close_pool(pool)
    generation = Finding("generation", "pass" if live else "warn", live.name if live else "none yet", "" if live else "Start a worker: it makes the first one.")
    return [generation, _summarize_dead_letters(dead_letters, bool(next_cursor)), *_check_direct_access(access)]


def _check_direct_access(access: DirectAccess) -> list[Finding]:
    """Of clients that read tables without the API, as those of Supabase do."""
    if access.unsecured:
        detail = f"Clients that read tables directly see every row of {', '.join(access.unsecured)}: row-level security is off there."
        fix = "Revoke select on it from anabranch_reader, authenticated, anon and public, or turn it on again: `select anabranch.secure_rows('TABLE')`."
        return [Finding("row-level security", "fail", detail, fix)]
    if not access.is_granted:
        problem = "has no grants" if access.has_role else "is missing: the server let us make no role"
        create_role_hint = "" if access.has_role else "let an administrator run `create role anabranch_reader nologin`, then "
        fix = f"If clients are to read tables directly, {create_role_hint}run `select anabranch.grant_direct_access()` as the owner of the tables."
        return [Finding("row-level security", "warn", f"The role for direct access, anabranch_reader, {problem}.", fix)]
    return [Finding("row-level security", "pass", "on for every table that clients may read")]


def _summarize_dead_letters(dead_letters: Sequence[Mapping[str, Any]], has_more: bool) -> Finding:
    if not dead_letters:
        return Finding("dead letters", "pass", "0")
    latest = dead_letters[0]
    detail = f"{len(dead_letters)}{'+' if has_more else ''}; the last at stage {latest['stage']}: {latest['detail']} [{latest['code']}]"
    return Finding("dead letters", "warn", detail, "`anabranch documents list --state failed` lists the documents, `anabranch dlq list` every event.")


async def check_kafka(settings: Settings) -> Sequence[Finding]:
    if settings.log_kind != "kafka":
        return []
    comparisons = await check_topics(settings)
    problems = [
        Finding(f"Kafka topic {comparison.topic}", "warn", comparison.problem, comparison.remedy or "") for comparison in comparisons if comparison.problem
    ]
    if unreadable_settings := explain_unreadable_settings(comparisons):
        problems.append(Finding("Kafka topics", "warn", *unreadable_settings))
    topics = problems or [Finding("Kafka", "pass", f"{len(comparisons)} topics at {settings.kafka.bootstrap_servers}")]
    return [*topics, *(await _check_kafka_acls(settings) or [Finding("Kafka ACLs", "pass", "nobody else may write the topics of this program")])]


async def _check_kafka_acls(settings: Settings) -> Sequence[Finding]:
    """Return what the cluster permits others to do with topics that only this program writes."""
    from anabranch.kafka.acls import find_foreign_writers
    from streams.kafka.kafka_log import KafkaLog

    log = KafkaLog(build_kafka_settings(settings.kafka))
    try:
        grants = await log.fetch_grants()
    except ConfigurationError as error:
        return [Finding("Kafka ACLs", "warn", f"not known: {error.detail}", "Allow this principal Describe on the cluster.")]
    finally:
        await log.close()
    if grants is None:
        detail = "the cluster has no access rules: without an authorizer, whoever reaches it may write every topic"
        return [Finding("Kafka ACLs", "warn", detail, "Configure an authorizer on the brokers, then apply `anabranch topics acls`.")]
    return [
        Finding(
            "Kafka ACLs",
            "warn",
            f"{principal} may write {', '.join(topics)}",
            "Remove the rule, or name the principal in ANABRANCH_KAFKA__PRINCIPALS if it is the API's or a worker's.",
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
    return [Finding("blob store", "pass" if is_intact else "fail", "put, get and delete work" if is_intact else "what was put did not come back", "")]


async def check_models(settings: Settings) -> Sequence[Finding]:
    sections = {name: getattr(settings, name) for name in ("chat", "embed", "rerank", "ocr", "extract")}
    return [await _check_model(name, model) for name, model in sections.items() if model.base_url]


async def _check_model(section: str, model: ModelSettings) -> Finding:
    """Any answer will do: servers differ in what they list."""
    headers = {"Authorization": f"Bearer {model.api_key.get_secret_value()}"} if model.api_key else {}
    try:
        async with httpx2.AsyncClient(timeout=10) as client:
            status = (await client.get(f"{str(model.base_url).rstrip('/')}/models", headers=headers)).status_code
    except httpx2.HTTPError as error:
        return Finding(f"model: {section}", "fail", f"{model.base_url}: {error or type(error).__name__}", "Start the server, or correct the address.")
    is_refused = status in (401, 403)
    return Finding(
        f"model: {section}",
        "fail" if is_refused else "pass",
        f"{model.base_url} answers {status}",
        f"Check ANABRANCH_{section.upper()}__API_KEY." if is_refused else "",
    )
