"""Direct access by a second role: two tenants with two users each."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from anabranch.config.loader import load_settings
from anabranch.config.settings import Settings
from anabranch.doctor import connections
from sql.database import connect
from sql.embedded.server import EmbeddedPostgres
from sql.index.partitions import ROW_SECURITY_TABLES, create_partitions
from tests.support.document_rows import (
    SampleDocument,
    insert_documents,
    insert_mention,
    insert_relation,
)
from tests.support.postgres_fixture import execute_sql
from tests.support.search_stack import SearchStack, open_search_stack

GRANTED_TABLES = {
    *ROW_SECURITY_TABLES - {"chunk_vectors"},
    *("documents", "document_revisions", "runs", "entities", "live_generation"),
}
WITHOUT_TENANT = {"live_generation"}
RESTRICTED_TABLES = {
    "api_keys",
    "calibrations",
    "audit_events",
    "collection_deletions",
    "collection_profiles",
    "chunk_history",
    "chunk_states",
    "corpus_deltas",
    "dead_letters",
    "document_amendments",
    "document_owners",
    "ingress_failures",
    "dropped_states",
    "erasure_counts",
    "entity_aliases",
    "entity_corrections",
    "current_aliases",
    "exams",
    "experiments",
    "erasure_items",
    "erasure_subjects",
    "erasures",
    "events",
    "facts",
    "feedback",
    "generation_builds",
    "generation_engine_calls",
    "generations",
    "graph_chunks",
    "graph_documents",
    "graph_entities",
    "graph_mentions",
    "graph_part_of",
    "graph_related",
    "expired_batches",
    "expired_ranges",
    "consumer_offsets",
    "inbox",
    "index_changes",
    "job_stages",
    "jobs",
    "judgements",
    "lexical_deltas",
    "log_readers",
    "engine_results",
    "migration_checksums",
    "reader_status",
    "reloaded_profiles",
    "replays",
    "revision_dead_letters",
    "revision_positions",
    "revision_states",
    "revision_parts",
    "answer_changes",
    "standing_cursor",
    "standing_questions",
    "standing_terms",
    "source_changes",
    "source_notes",
    "source_progress",
    "source_rows",
    "source_states",
    "source_tables",
    "sources",
    "topics",
}


@dataclass(frozen=True)
class DirectAccessClient:
    """A login that is a member of the direct-access role only."""

    dsn: str

    @asynccontextmanager
    async def connect_with_claims(
        self, claims: dict[str, object] | None
    ) -> AsyncIterator[asyncpg.Connection]:
        connection = await asyncpg.connect(self.dsn, server_settings={"search_path": "anabranch"})
        try:
            if claims is not None:
                await connection.execute(
                    "select set_config('request.jwt.claims', $1, false)", json.dumps(claims)
                )
            yield connection
        finally:
            await connection.close()


@pytest.fixture
def client(database: str, postgres_server: EmbeddedPostgres) -> DirectAccessClient:
    role, password, superuser = (
        f"client_{uuid4().hex[:12]}",
        uuid4().hex,
        urlsplit(postgres_server.superuser_dsn),
    )
    execute_sql(
        urlunsplit(superuser._replace(path=urlsplit(database).path)),
        f"create role {role} login password '{password}' in role anabranch_reader",
    )
    tcp = urlsplit(postgres_server.tcp_dsn or "")
    return DirectAccessClient(
        urlunsplit(
            tcp._replace(
                netloc=f"{role}:{password}@{tcp.hostname}:{tcp.port}", path=urlsplit(database).path
            )
        )
    )


def make_claims(tenant: str, user: str, *groups: str) -> dict[str, object]:
    return {"sub": user, "app_metadata": {"tenant_id": tenant, "groups": list(groups)}}


async def test_direct_role_reads_no_foreign_rows(
    stack: SearchStack, client: DirectAccessClient
) -> None:
    docs = {
        "open": SampleDocument("open", ["alpha heron"], vectors=[[1, 0, 0, 0]]),
        "ana": SampleDocument("ana", ["beta heron"], vectors=[[1, 0, 0, 0]], readers=("user:ana",)),
        "finance": SampleDocument(
            "finance", ["gamma heron"], vectors=[[1, 0, 0, 0]], readers=("group:finance",)
        ),
        "foreign": SampleDocument(
            "foreign", ["delta heron"], vectors=[[1, 0, 0, 0]], tenant="other"
        ),
    }
    connection = stack.connection
    for table in ROW_SECURITY_TABLES:
        await connection.execute("select secure_rows($1)", f"{table}_g1")
    await insert_documents(connection, *docs.values())
    for doc in docs.values():
        entity = await insert_mention(connection, doc, 0, "bird", "heron", doc.external_id)
        await insert_relation(connection, doc, 0, entity, entity)
        await connection.execute(
            "insert into claims (generation, document_id, ord, tenant, id, chunk_id, "
            "subject_id, property, value, char_start, char_end)"
            " values ('g1', $1, $2, $3, gen_random_uuid(), $4, $5, 'name', 'x', 0, 1)",
            *(doc.id, list(doc.order), doc.tenant, doc.chunk_id(0), entity),
        )
        who = "jwt:ana" if doc.external_id == "ana" else "jwt:ben"
        await connection.execute(
            "insert into runs (id, tenant, kind, requested_by) values ($1, $2, 'query', $3)",
            doc.id,
            doc.tenant,
            who,
        )
    readable = {
        ("default", "ana"): {"open", "ana"},
        ("default", "ben", "finance"): {"open", "finance"},
        ("other", "ana"): {"foreign"},
        ("other", "ben", "finance"): {"foreign"},
    }
    for who, names in readable.items():
        async with client.connect_with_claims(make_claims(*who)) as reader:
            allowed = {docs[name].id for name in names}
            for table in sorted(GRANTED_TABLES - WITHOUT_TENANT - {"entities", "runs"}):
                column = "id" if table == "documents" else "document_id"
                found = await reader.fetch(f"select {column} as id, tenant from {table}")
                assert {row["id"] for row in found} == allowed and {
                    row["tenant"] for row in found
                } == {who[0]}, (table, who)
            spelled = {
                name
                for row in await reader.fetch("select names from entities")
                for name in row["names"]
            }
            assert spelled == names
            runs = {row["id"] for row in await reader.fetch("select id from runs")}
            assert runs == {
                doc.id
                for doc in docs.values()
                if doc.tenant == who[0] and (doc.external_id == "ana") == (who[1] == "ana")
            }
    for claims in (
        None,
        {},
        {"sub": "ana"},
        {"app_metadata": {"tenant_id": "default"}},
        {"sub": "ana", "user_metadata": {"tenant_id": "default"}},
    ):
        async with client.connect_with_claims(claims) as reader:
            for table in sorted(GRANTED_TABLES - WITHOUT_TENANT):
                found = await reader.fetch(f"select * from {table}")
                open_to_all = (
                    claims is not None
                    and claims.get("app_metadata") is not None
                    and table != "runs"
                )
                assert all(
                    "beta" not in str(row) and "gamma" not in str(row) and "delta" not in str(row)
                    for row in found
                )
                assert open_to_all or not found, (table, claims)


async def test_direct_role_cannot_switch_roles(database: str, client: DirectAccessClient) -> None:
    async with client.connect_with_claims(None) as reader:
        who = await reader.fetchrow(
            "select session_user, current_user, inet_client_addr() is not null as over_tcp"
        )
        assert (
            who["session_user"] == who["current_user"] == urlsplit(client.dsn).username
            and who["over_tcp"]
        )
        for attempt in (
            "set role anabranch",
            "set session authorization anabranch",
            "set row_security = off; select * from documents",
            "select secure_rows('documents')",
        ):
            with pytest.raises(asyncpg.PostgresError):
                await reader.execute(attempt)
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(client.dsn, password="wrong")


async def test_direct_role_cannot_read_partitions_operations_or_keys(
    database: str, client: DirectAccessClient
) -> None:
    async with (
        open_search_stack(database) as desk,
        client.connect_with_claims(make_claims("default", "ana")) as reader,
    ):
        tables = await desk.connection.fetch(
            "select c.oid::regclass::text as name from pg_class c "
            "join pg_namespace n on n.oid = c.relnamespace"
            " where c.relkind in ('r', 'p', 'v', 'm') "
            "and n.nspname in ('anabranch', 'keystore', 'supabase_migrations')"
        )
        refused = 0
        for table in [row["name"] for row in tables]:
            if table.removeprefix("anabranch.") in GRANTED_TABLES:
                continue
            refused += 1
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await reader.execute(f"select from {table}")
        assert refused > 40
        for table in sorted(GRANTED_TABLES):
            with pytest.raises(asyncpg.PostgresError):
                await reader.execute(f"delete from {table}")


async def test_every_table_has_row_level_security_or_is_not_granted(database: str) -> None:
    """A new table must be added to one of the two lists."""
    async with open_search_stack(database) as desk:
        rows = await desk.connection.fetch(
            """select c.relname as name,
                 c.relrowsecurity or coalesce(c.reloptions @> '{security_invoker=true}',
                 false) as secured,
                 has_table_privilege('anabranch_reader', c.oid, 'select') as granted
               from pg_class c where c.relnamespace = 'anabranch'::regnamespace
                 and c.relkind in ('r', 'p', 'v') and not c.relispartition"""
        )
        for row in rows:
            assert row["granted"] == (row["name"] in GRANTED_TABLES), row["name"]
            assert row["secured"] or row["name"] in RESTRICTED_TABLES | WITHOUT_TENANT, (
                f"{row['name']} has neither row-level security nor stands in RESTRICTED_TABLES"
            )
        assert not await desk.connection.fetchval(
            "select has_schema_privilege('anabranch_reader', 'keystore', 'usage')"
        )


async def test_partitions_of_later_generations_have_row_level_security(
    stack: SearchStack, database: str
) -> None:
    generation = stack.generation.model_copy(update={"name": "g2"})
    connection = await connect(database, name="later generation")
    try:
        async with connection.transaction():
            await create_partitions(connection, generation, indexed=False)
    finally:
        await connection.close()
    secured = await stack.connection.fetch(
        "select relname from pg_class where relname like '%\\_g2' and relrowsecurity"
    )
    assert {row["relname"] for row in secured} == {f"{table}_g2" for table in ROW_SECURITY_TABLES}


async def fetch_doctor_finding(settings: Settings) -> tuple[str, str, str]:
    [finding] = [
        finding
        for finding in await connections.check_database(settings)
        if finding.check == "row-level security"
    ]
    return finding.state, finding.detail, finding.remedy


async def test_doctor_names_granted_tables_without_row_level_security(
    database: str, tmp_path: Path
) -> None:
    settings = load_settings(data_dir=tmp_path, sets=[f"database.url={database}"])
    owner = await connect(database, name="owner")
    try:
        assert (await fetch_doctor_finding(settings))[0] == "pass"
        for spoil, name, mend in (
            (
                "alter table claims disable row level security",
                "anabranch.claims",
                "select anabranch.secure_rows('claims')",
            ),
            (
                "grant select on dead_letters to anabranch_reader",
                "anabranch.dead_letters",
                "revoke select on dead_letters from anabranch_reader",
            ),
            (
                "grant select (detail) on dead_letters to public",
                "anabranch.dead_letters",
                "revoke select (detail) on dead_letters from public",
            ),
            (
                "alter view entities set (security_invoker = false)",
                "anabranch.entities",
                "alter view entities set (security_invoker = true)",
            ),
        ):
            await owner.execute(spoil)
            status, detail, _ = await fetch_doctor_finding(settings)
            assert status == "fail" and f"row-level security is off for {name}:" in detail
            await owner.execute(mend)
            assert (await fetch_doctor_finding(settings))[0] == "pass"
    finally:
        await owner.close()


async def test_doctor_explains_how_to_create_direct_role(
    database: str, tmp_path: Path, postgres_server: EmbeddedPostgres
) -> None:
    settings = load_settings(data_dir=tmp_path, sets=[f"database.url={database}"])
    owner = await connect(database, name="owner")
    try:
        execute_sql(postgres_server.superuser_dsn, "alter role anabranch_reader rename to away")
        try:
            status, detail, fix = await fetch_doctor_finding(settings)
            assert (
                status == "warn"
                and "is missing" in detail
                and "create role anabranch_reader nologin" in fix
            )
        finally:
            execute_sql(postgres_server.superuser_dsn, "alter role away rename to anabranch_reader")
        await owner.execute("revoke all on all tables in schema anabranch from anabranch_reader")
        status, detail, fix = await fetch_doctor_finding(settings)
        assert status == "warn" and "has no grants" in detail and "create role" not in fix
        await owner.execute("select anabranch.grant_direct_access()")
        assert (await fetch_doctor_finding(settings))[0] == "pass"
        granted = await owner.fetch(
            "select relname from pg_class where relnamespace = 'anabranch'::regnamespace "
            "and has_table_privilege('anabranch_reader', oid, 'select')"
        )
        assert {row["relname"] for row in granted} == GRANTED_TABLES
    finally:
        await owner.close()
