"""Declare, reset and remove sources."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import parse_qs, urlsplit

from schemas.errors import (
    AnabranchError,
    ConfigurationError,
    InvalidRequest,
    NotFound,
    unknown_resource_error,
)
from schemas.events import EventData, SourceAdded, SourceRemoved, SourceReset
from schemas.principals import Principal
from schemas.sources import (
    DebeziumSource,
    FolderSource,
    PostgresSource,
    SequenceReset,
    SourceRequest,
    SourceSpec,
    UrlsSource,
)
from services.background_tasks import poll_until
from services.generations.decisions import PROJECTION_TIMEOUT_S
from services.publishing import EventPublisher
from sql.catalog.sources import PgSources
from streams.codec import OWN_SOURCE_PREFIX

CE_SOURCE = "anabranch/sources"
RESERVED_SCHEMAS = (
    "anabranch",
    "keystore",
    "credentials",
    "supabase_migrations",
    "information_schema",
)


@dataclass(frozen=True, slots=True)
class SourceService:
    """Publish decisions about sources, and wait until stage `control` has projected them."""

    publisher: EventPublisher
    tables: PgSources
    fetch_ends: Callable[[str], Awaitable[dict[int, int]]]
    has_kafka: bool
    list_allowed_folders: Callable[[], Sequence[Path]]
    """Folders that may be watched, with everything below them."""
    producer_tenants: Mapping[str, Collection[str]]
    """Tenants that each ce_source may write for (`INGEST__SOURCES`)."""
    projection_timeout_s: float = PROJECTION_TIMEOUT_S

    async def list_sources(self, tenant: str) -> list[dict[str, Any]]:
        return [
            _format_source(row)
            for row in await self.tables.list_overview()
            if _belongs_to(row, tenant) and not row["removed"]
        ]

    async def get_source(self, tenant: str, name: str) -> dict[str, Any]:
        return _format_source(await self._fetch_declared(tenant, name))

    async def add_source(self, tenant: str, request: SourceRequest) -> dict[str, Any]:
        """Raise InvalidRequest if the name is taken or this server cannot read the source."""
        existing = await self._find_row(request.name)
        if existing is not None and not (existing["removed"] and _belongs_to(existing, tenant)):
            # Names are unique across tenants: settings, replication slots and leases use them. The
            # error does not reveal the owner.
            raise InvalidRequest(
                f"The name {request.name!r} is taken.",
                code="SOURCE_EXISTS",
                remedy="Take another name. If `anabranch source list` shows it, `anabranch source "
                f"remove {request.name}` frees it for this tenant.",
            )
        self._check_request(request)
        spec = SourceSpec(**dict(request), tenant=tenant)
        await self._publish_decision(
            # The higher epoch outranks all numbers of the removed source of this name.
            SourceAdded(source=spec, epoch=existing["epoch"] + 1 if existing else 1),
            spec.name,
            lambda row: _belongs_to(row, tenant) and not row["removed"],
        )
        return {"status": "accepted", "name": spec.name, "ce_source": spec.ce_source}

    async def remove_source(self, tenant: str, name: str, *, withdraw: bool) -> dict[str, Any]:
        source_row = await self._fetch_declared(tenant, name)
        await self._publish_decision(
            SourceRemoved(source=name, withdraw=withdraw, tenant=tenant),
            name,
            lambda row: bool(row["removed"]),
        )
        return {
            "status": "accepted",
            "name": name,
            "documents": source_row["documents"],
            "withdrawn": source_row["documents"] if withdraw else 0,
        }

    async def reset_source(self, caller: Principal, name: str) -> dict[str, Any]:
        """Start a new epoch. `name` may also be the ce_source of a producer that numbers its
        changes.
        """
        row = await self._find_row(name)
        # Operators, since a reset affects every tenant of the producer, or its only tenant. Our own
        # sources are reset by their declared name.
        can_reset_producer = not name.startswith(OWN_SOURCE_PREFIX) and (
            caller.has_role("operator")
            or set(self.producer_tenants.get(name, ())) == {caller.tenant}
        )
        if row is not None and row["spec"] is not None:
            await self._fetch_declared(caller.tenant, name)
        elif not can_reset_producer or (
            row is None and not await self.tables.has_numbered_documents(name)
        ):
            raise _build_unknown_error(name)
        epoch = (row["epoch"] if row else 1) + 1
        # Records below these offsets belong to the old epoch.
        begins = await self._fetch_begin_offsets(row)
        reset = SourceReset(
            source=name, reset=SequenceReset(epoch=epoch, begins=begins), tenant=caller.tenant
        )
        await self._publish_decision(reset, name, lambda row: bool(row["epoch"] >= epoch))
        return {"status": "accepted", "name": name, "epoch": epoch, "begins": begins}

    async def _fetch_begin_offsets(self, row: Mapping[str, Any] | None) -> dict[int, int]:
        if row is None or row["spec"] is None:
            return {}
        reading = SourceSpec.model_validate(row["spec"]).connector
        if not isinstance(reading, DebeziumSource):
            return {}
        try:
            return await self.fetch_ends(reading.topic)
        except ConfigurationError:
            return {}  # a topic that does not exist yet has no old records

    async def _fetch_declared(self, tenant: str, name: str) -> Mapping[str, Any]:
        row = await self._find_row(name)
        if row is None or not _belongs_to(row, tenant) or row["removed"]:
            raise _build_unknown_error(name)
        return row

    async def _find_row(self, name: str) -> Mapping[str, Any] | None:
        rows = await self.tables.list_overview()
        return next((row for row in rows if row["name"] == name), None)

    def _check_request(self, request: SourceRequest) -> None:
        match request.connector:
            case DebeziumSource() if not self.has_kafka:
                raise InvalidRequest(
                    "Change topics need Kafka, and the log here is a Postgres table.",
                    code="NEEDS_KAFKA",
                    remedy="Read the table itself with `anabranch source add postgres`, or set "
                    "ANABRANCH_KAFKA__BOOTSTRAP_SERVERS in another data folder.",
                )
            case PostgresSource(dsn=str()):
                raise InvalidRequest(
                    "A request may not contain a database URL.",
                    code="DSN_IN_REQUEST",
                    remedy=f"Omit `dsn` and set {format_dsn_setting(request.name)} in the "
                    "worker's environment.",
                )
            case PostgresSource() as table:
                check_table(table, InvalidRequest)
            case UrlsSource(urls=urls) if any(_has_password(url) for url in urls):
                raise InvalidRequest(
                    "A URL contains a password, which would stay in the log for ever.",
                    code="PASSWORD_IN_LOG",
                    remedy="Use URLs without credentials.",
                )
            case FolderSource(path=path) if not PurePath(path).is_absolute():
                raise InvalidRequest(
                    f"{path!r} is not an absolute path.",
                    code="RELATIVE_PATH",
                    remedy="Give the absolute path on the worker's machine.",
                )
            case FolderSource() as folder:
                check_folder(folder, self.list_allowed_folders(), InvalidRequest)

    async def _publish_decision(
        self, decision: EventData, name: str, is_applied: Callable[[Mapping[str, Any]], bool]
    ) -> None:
        await self.publisher.publish(decision, CE_SOURCE, name)

        async def is_projected() -> bool:
            row = await self._find_row(name)
            return row is not None and is_applied(row)

        await poll_until(is_projected, self.projection_timeout_s)


def check_folder(
    folder: FolderSource, allowed: Sequence[Path], error: type[AnabranchError] = ConfigurationError
) -> None:
    # Resolved, so that a symbolic link cannot lead out of an allowed folder.
    if not any(Path(folder.path).resolve().is_relative_to(root) for root in allowed):
        raise error(
            f"Folder {folder.path} may not be watched.",
            code="FORBIDDEN_FOLDER",
            remedy="Run `anabranch source add folder` where the server's data folder is (--data), "
            "or name it in ANABRANCH_INGEST__FOLDERS of API and worker.",
        )


def check_table(table: PostgresSource, error: type[AnabranchError] = ConfigurationError) -> None:
    """Raise `error` for tables of this program or of Postgres.

    They hold keys, and reading them would feed changes back.
    """
    schema, _ = table.schema_and_table
    if schema in RESERVED_SCHEMAS or schema.startswith("pg_"):
        raise error(
            f"Tables of schema {schema!r} are not indexed.",
            code="FORBIDDEN_TABLE",
            remedy="Name a table of your own.",
        )


def format_dsn_setting(name: str) -> str:
    """Name the setting with the source's database URL."""
    return f"ANABRANCH_SOURCES__{name}".upper().replace("-", "_")


def _belongs_to(row: Mapping[str, Any], tenant: str) -> bool:
    return row["spec"] is not None and row["spec"].get("tenant") == tenant


def _build_unknown_error(name: str) -> NotFound:
    remedy = (
        "`anabranch source list` shows the sources of the tenant. A producer that "
        "ANABRANCH_INGEST__SOURCES does not bind to one tenant needs an operator."
    )
    return unknown_resource_error("source", repr(name), remedy, "NO_SUCH_SOURCE")


def _has_password(dsn: str) -> bool:
    try:
        parts = urlsplit(dsn)
        return bool(parts.password) or "password" in parse_qs(parts.query) or "password=" in dsn
    except ValueError:
        return True


def _format_source(row: Mapping[str, Any]) -> dict[str, Any]:
    spec = SourceSpec.model_validate(row["spec"])
    status = row["status"] or {"state": "starting"}
    return {
        **spec.model_dump(mode="json", exclude={"tenant"}),
        "kind": spec.connector.kind,
        "ce_source": spec.ce_source,
        "epoch": row["epoch"],
        "state": status["state"],
        "documents": row["documents"],
        "pending": row["pending"],
        "incomplete": row["incomplete"],
        "last_change_at": row["last_change_at"],
        "status": status,
    }
