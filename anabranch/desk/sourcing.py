"""Sources through the API: decisions on their way into `control`, and what has become of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from anabranch.desk.hearing import HEARD_S, heard
from schemas.errors import AnabranchError, ConfigurationError, InvalidRequest, NotFound
from schemas.events import Event, SourceAdded, SourceRemoved, SourceReset
from schemas.ports.log import EventLog
from schemas.principals import Principal
from schemas.sources import DebeziumSource, FolderSource, PostgresSource, Reset, SourceRequest, SourceSpec, UrlsSource
from streams.codec import OWN, Codec
from streams.publisher import own_fact
from streams.topics import CONTROL

AUTHOR = "anabranch/sources"
OWN_SCHEMAS = ("anabranch", "keystore", "credentials", "supabase_migrations", "information_schema")


class Overview(Protocol):
    async def overview(self) -> list[dict[str, Any]]: ...

    async def numbers(self, ce_source: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class LogSources:
    """`api.services.Sources` over the log. A decision holds as soon as stage `control` has read it; that is waited for, for so long."""

    log: EventLog
    codec: Codec
    tables: Overview
    ends: Callable[[str], Awaitable[dict[int, int]]]
    has_kafka: bool
    folders: Callable[[], Sequence[Path]]
    """That may be watched, with everything below them."""
    producers: Mapping[str, Collection[str]]
    """ce_source → tenants that it may write for (`INGEST__SOURCES`)."""
    clock: Callable[[], datetime]
    fresh_id: Callable[[], UUID]
    heard_s: float = HEARD_S

    async def find(self, tenant: str) -> list[dict[str, Any]]:
        return [_body(row) for row in await self.tables.overview() if _is_of(row, tenant) and not row["removed"]]

    async def get(self, tenant: str, name: str) -> dict[str, Any]:
        return _body(await self._declared(tenant, name))

    async def add(self, tenant: str, request: SourceRequest) -> dict[str, Any]:
        """Raises InvalidRequest for a name that is taken and for what cannot be read here."""
        known = next((row for row in await self.tables.overview() if row["name"] == request.name), None)
        if known is not None and not (known["removed"] and _is_of(known, tenant)):
            # Names are unique on the server: settings, replication slots and readers go by them. The answer does not tell whose it is.
            remedy = f"Take another name. If `anabranch source list` shows it, `anabranch source remove {request.name}` frees it for this tenant."
            raise InvalidRequest(f"The name {request.name!r} is taken.", code="SOURCE_EXISTS", remedy=remedy)
        self._check(request)
        spec = SourceSpec(**dict(request), tenant=tenant)
        await self._decide(
            SourceAdded(source=spec, epoch=known["epoch"] + 1 if known else 1), spec.name, lambda row: _is_of(row, tenant) and not row["removed"]
        )
        return {"status": "accepted", "name": spec.name, "ce_source": spec.ce_source}

    async def remove(self, tenant: str, name: str, *, withdraw: bool) -> dict[str, Any]:
        found = await self._declared(tenant, name)
        await self._decide(SourceRemoved(source=name, withdraw=withdraw, tenant=tenant), name, lambda row: bool(row["removed"]))
        return {"status": "accepted", "name": name, "documents": found["documents"], "withdrawn": found["documents"] if withdraw else 0}

    async def reset(self, caller: Principal, name: str) -> dict[str, Any]:
        """`name` may be the ce_source of another producer that numbers its changes."""
        row = next((row for row in await self.tables.overview() if row["name"] == name), None)
        if row is not None and row["spec"] is not None:
            await self._declared(caller.tenant, name)
        elif not self._may_reset_producer(caller, name) or (row is None and not await self.tables.numbers(name)):
            raise _unknown(name)
        epoch = (row["epoch"] if row else 1) + 1
        begins = await self._begins(row)
        reset = SourceReset(source=name, reset=Reset(epoch=epoch, begins=begins), tenant=caller.tenant)
        await self._decide(reset, name, lambda row: bool(row["epoch"] >= epoch))
        return {"status": "accepted", "name": name, "epoch": epoch, "begins": begins}

    def _may_reset_producer(self, caller: Principal, ce_source: str) -> bool:
        """A reset concerns every tenant that the producer writes for. Names of our own are reset by the name of the declared source."""
        if ce_source.startswith(OWN):
            return False
        return caller.has_role("operator") or set(self.producers.get(ce_source, ())) == {caller.tenant}

    async def _begins(self, row: Mapping[str, Any] | None) -> dict[int, int]:
        if row is None or row["spec"] is None:
            return {}
        takes = SourceSpec.model_validate(row["spec"]).takes
        if not isinstance(takes, DebeziumSource):
            return {}
        try:
            return await self.ends(takes.topic)
        except ConfigurationError:
            return {}  # a topic that is not there yet holds nothing of before

    async def _declared(self, tenant: str, name: str) -> Mapping[str, Any]:
        for row in await self.tables.overview():
            if row["name"] == name and _is_of(row, tenant) and not row["removed"]:
                return row
        raise _unknown(name)

    def _check(self, request: SourceRequest) -> None:
        match request.takes:
            case DebeziumSource() if not self.has_kafka:
                raise InvalidRequest(
                    "change topics are read from Kafka, and the log here is a Postgres table",
                    code="NEEDS_KAFKA",
                    remedy="Read the table itself with `anabranch source add postgres`, or set ANABRANCH_KAFKA__BOOTSTRAP_SERVERS in another data folder.",
                )
            case PostgresSource(dsn=str()):
                raise InvalidRequest(
                    "The address of a database is not taken from a request.",
                    code="DSN_IN_REQUEST",
                    remedy=f"Leave `dsn` out and set {setting_of(request.name)} where the worker runs.",
                )
            case PostgresSource() as table:
                check_table(table, InvalidRequest)
            case UrlsSource(urls=urls) if any(_has_password(url) for url in urls):
                raise InvalidRequest(
                    "an address holds a password, which would stand in the log for ever", code="PASSWORD_IN_LOG", remedy="Name pages without one."
                )
            case FolderSource(path=path) if not PurePath(path).is_absolute():
                raise InvalidRequest(
                    f"{path} is no absolute path", code="RELATIVE_PATH", remedy="Name the folder from the root, as the worker's machine has it."
                )
            case FolderSource() as folder:
                check_folder(folder, self.folders(), InvalidRequest)

    async def _decide(self, decision: Event, name: str, holds: Callable[[Mapping[str, Any]], bool]) -> None:
        fact = own_fact(decision, self.fresh_id(), AUTHOR, self.clock)
        await self.log.append([await self.codec.encode(fact, CONTROL, name)])

        async def is_there() -> bool:
            return any(row["name"] == name and holds(row) for row in await self.tables.overview())

        await heard(is_there, within_s=self.heard_s)


def check_folder(folder: FolderSource, within: Sequence[Path], error: type[AnabranchError] = ConfigurationError) -> None:
    if not any(Path(folder.path).resolve().is_relative_to(root) for root in within):
        remedy = "Run `anabranch source add folder` where the server's data folder is (--data), or name it in ANABRANCH_INGEST__FOLDERS of API and worker."
        raise error(f"Folder {folder.path} may not be watched.", code="FORBIDDEN_FOLDER", remedy=remedy)


def check_table(table: PostgresSource, error: type[AnabranchError] = ConfigurationError) -> None:
    """The tables of this program and of Postgres are no documents: among them are keys, and what is read of them would come back as a change of them."""
    schema, _ = table.place
    if schema in OWN_SCHEMAS or schema.startswith("pg_"):
        raise error(f"Tables of schema {schema!r} are not indexed.", code="FORBIDDEN_TABLE", remedy="Name a table of your own.")


def setting_of(name: str) -> str:
    """Where a worker finds the address of a source's database."""
    return f"ANABRANCH_SOURCES__{name}".upper().replace("-", "_")


def _is_of(row: Mapping[str, Any], tenant: str) -> bool:
    return row["spec"] is not None and row["spec"].get("tenant") == tenant


def _unknown(name: str) -> NotFound:
    remedy = "`anabranch source list` shows the sources of the tenant. A producer that ANABRANCH_INGEST__SOURCES does not bind to one tenant needs an operator."
    return NotFound(f"no source {name}", code="NO_SUCH_SOURCE", remedy=remedy)


def _has_password(dsn: str) -> bool:
    try:
        parts = urlsplit(dsn)
        return bool(parts.password) or "password" in parse_qs(parts.query) or "password=" in dsn
    except ValueError:
        return True


def _body(row: Mapping[str, Any]) -> dict[str, Any]:
    spec = SourceSpec.model_validate(row["spec"])
    status = row["status"] or {"state": "starting"}
    return {
        **spec.model_dump(mode="json", exclude={"tenant"}),
        "kind": spec.takes.kind,
        "ce_source": spec.ce_source,
        "epoch": row["epoch"],
        "state": status["state"],
        "documents": row["documents"],
        "owed": row["owed"],
        "unsure": row["unsure"],
        "last_change_at": row["passed_at"],
        "status": status,
    }
