"""What is connected to: database, log, blobs, model servers, the server in the data folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

from anabranch.composition.storage import blobs_of, kafka_of
from anabranch.composition.topics import compared_topics, unseen_settings
from anabranch.doctor.findings import Finding
from anabranch.process.data_folder import find_server
from anabranch.settings import ModelSettings, Settings
from schemas.errors import ConfigurationError
from sql.generations import PgGenerations
from sql.inspection import DirectAccess, direct_access, inspect
from sql.pool import close_pool, open_pool, waits_for_locks
from sql.records import PgRecords

PROBE = "_doctor/probe"
ANSWER_S = 10.0
"""The server itself waits for half as long for what it looks at."""
LOCK_WAIT_S = 2.0
"""So long a table is waited for that somebody has locked."""


async def server(settings: Settings) -> Sequence[Finding]:
    found = find_server(settings.data_dir)
    if found is None:
        return [Finding("server", "pass", "none runs in the data folder", "")]
    return await server_at(found.url, f"{found.url} (pid {found.pid})", "See its log, or start it again.")


async def server_at(url: str, called: str, remedy: str) -> Sequence[Finding]:
    """What the server tells of its dependencies; `remedy` is for one that does not answer."""
    try:
        async with httpx2.AsyncClient(timeout=ANSWER_S) as client:
            lines = (await client.get(f"{url}/readyz")).json()["dependencies"]
    except httpx2.HTTPError as error:
        return [Finding("server", "fail", f"{called} does not answer: {error or type(error).__name__}", remedy)]
    except (ValueError, KeyError, TypeError):
        return [Finding("server", "fail", f"{called} is no Anabranch", "Correct --server.")]
    bad = {name: line for name, line in lines.items() if not line["ok"]}
    if bad:
        return [Finding(f"server: {name}", "fail", line["detail"], line["remedy"]) for name, line in bad.items()]
    return [Finding("server", "pass", f"ready at {called}")]


def dsn_of(settings: Settings) -> str | None:
    """The database that is named, or that runs in the data folder."""
    running = find_server(settings.data_dir)
    return settings.database.url.get_secret_value() if settings.database.url else running.database_url if running else None


async def database(settings: Settings) -> Sequence[Finding]:
    """Nothing is started for this: an embedded server that does not run is not asked."""
    dsn = dsn_of(settings)
    if dsn is None:
        return []
    state = await inspect(dsn)
    findings = [
        Finding("Postgres", "pass" if state.version >= 15 else "fail", f"version {state.version}", "" if state.version >= 15 else "Use Postgres 15 or later.")
    ]
    findings.append(_vector(state.vector))
    findings.append(
        Finding(
            "migrations",
            "warn" if state.pending else "pass",
            f"{len(state.pending)} pending" if state.pending else "all applied",
            "anabranch db migrate" if state.pending else "",
        )
    )
    return findings if state.pending else [*findings, *await _contents(dsn)]


def _vector(version: str | None) -> Finding:
    if version is None:
        return Finding("pgvector", "fail", "the extension is not available", "Install pgvector 0.8 or later on the server.")
    enough = tuple(map(int, version.split(".")[:2])) >= (0, 8)
    return Finding("pgvector", "pass" if enough else "fail", version, "" if enough else "Install pgvector 0.8 or later.")


async def _contents(dsn: str) -> Sequence[Finding]:
    pool = await open_pool(dsn, size=2, name="anabranch doctor", settings=waits_for_locks(LOCK_WAIT_S))
    try:
        live = await PgGenerations(pool).live()
        buried, more = await PgRecords(pool).dead_letters("default", stage=None, after=None, limit=100)
        access = await direct_access(pool)
    finally:
        await close_pool(pool)
    generation = Finding("generation", "pass" if live else "warn", live.name if live else "none yet", "" if live else "Start a worker: it makes the first one.")
    return [generation, _letters(buried, bool(more)), *_direct_access(access)]


def _direct_access(access: DirectAccess) -> list[Finding]:
    """Of clients that read tables without the API, as those of Supabase do."""
    if access.unsecured:
        detail = f"Clients that read tables directly see every row of {', '.join(access.unsecured)}: row-level security is off there."
        fix = "Revoke select on it from anabranch_reader, authenticated, anon and public, or turn it on again: `select anabranch.secure_rows('TABLE')`."
        return [Finding("row-level security", "fail", detail, fix)]
    if not access.is_granted:
        missing = "has no grants" if access.has_role else "is missing: the server let us make no role"
        make = "" if access.has_role else "let an administrator run `create role anabranch_reader nologin`, then "
        fix = f"If clients are to read tables directly, {make}run `select anabranch.grant_direct_access()` as the owner of the tables."
        return [Finding("row-level security", "warn", f"The role for direct access, anabranch_reader, {missing}.", fix)]
    return [Finding("row-level security", "pass", "on for every table that clients may read")]


def _letters(buried: Sequence[Mapping[str, Any]], more: bool) -> Finding:
    if not buried:
        return Finding("dead letters", "pass", "0")
    last = buried[0]
    detail = f"{len(buried)}{'+' if more else ''}; the last at stage {last['stage']}: {last['detail']} [{last['code']}]"
    return Finding("dead letters", "warn", detail, "`anabranch documents list --state failed` lists the documents, `anabranch dlq list` every event.")


async def kafka(settings: Settings) -> Sequence[Finding]:
    if settings.log_kind != "kafka":
        return []
    found = await compared_topics(settings)
    wrong = [Finding(f"Kafka topic {one.topic}", "warn", one.problem, one.remedy or "") for one in found if one.problem]
    if unseen := unseen_settings(found):
        wrong.append(Finding("Kafka topics", "warn", *unseen))
    topics = wrong or [Finding("Kafka", "pass", f"{len(found)} topics at {settings.kafka.bootstrap_servers}")]
    return [*topics, *(await _access(settings) or [Finding("Kafka ACLs", "pass", "nobody else may write the topics of this program")])]


async def _access(settings: Settings) -> Sequence[Finding]:
    """Return what the cluster permits others to do with topics that only this program writes."""
    from anabranch.composition.acls import foreign_writers
    from streams.kafka.log import KafkaLog

    log = KafkaLog(kafka_of(settings.kafka))
    try:
        grants = await log.grants()
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
        for principal, topics in foreign_writers(settings, grants).items()
    ]


async def blobs(settings: Settings) -> Sequence[Finding]:
    if not settings.storage.url and not settings.data_dir.exists():
        return []
    store = blobs_of(settings)
    await store.put(PROBE, b"probe")
    same = await store.get(PROBE) == b"probe"
    await store.delete([PROBE])
    return [Finding("blob store", "pass" if same else "fail", "put, get and delete work" if same else "what was put did not come back", "")]


async def models(settings: Settings) -> Sequence[Finding]:
    named = {name: getattr(settings, name) for name in ("chat", "embed", "rerank", "ocr", "extract")}
    return [await _model(name, model) for name, model in named.items() if model.base_url]


async def _model(section: str, model: ModelSettings) -> Finding:
    """Any answer will do: servers differ in what they list."""
    headers = {"Authorization": f"Bearer {model.api_key.get_secret_value()}"} if model.api_key else {}
    try:
        async with httpx2.AsyncClient(timeout=10) as client:
            status = (await client.get(f"{str(model.base_url).rstrip('/')}/models", headers=headers)).status_code
    except httpx2.HTTPError as error:
        return Finding(f"model: {section}", "fail", f"{model.base_url}: {error or type(error).__name__}", "Start the server, or correct the address.")
    refused = status in (401, 403)
    return Finding(
        f"model: {section}",
        "fail" if refused else "pass",
        f"{model.base_url} answers {status}",
        f"Check ANABRANCH_{section.upper()}__API_KEY." if refused else "",
    )
