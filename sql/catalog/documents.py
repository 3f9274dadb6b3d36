"""Read documents, revisions and statuses in the shapes of the HTTP API."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime
from typing import Any
from uuid import UUID

from schemas import ids
from schemas.batching import CallBatcher
from schemas.ids import make_derived_id, make_received_id
from schemas.ports.search import DocumentText
from schemas.principals import Principal
from sql.catalog.document_status import (
    NO_OTHER_STAGES,
    build_ingress_line,
    build_stage_lines,
    find_pending_stage,
    resolve_ingress_state,
)
from sql.database import PgStore, Pool
from sql.page_cursor import ListOrder, format_count_cursor, parse_count_cursor, split_page

Body = dict[str, Any]
_NULL_FIELDS = (
    "source",
    "source_uri",
    "filename",
    "media_type",
    "title",
    "language",
    "collection",
    "document_date",
    "content_sha256",
    "blob",
    "bytes",
)
UNSEEN_DOCUMENT: Body = dict.fromkeys(
    (*_NULL_FIELDS, "received_at", "visible_revision", "characters", "pages", "error")
) | {"tags": [], "metadata": {}, "revision": 0}
"""Fields of a document before any of its events is admitted; its status is added."""


DOCUMENT_ORDER = ListOrder(
    {
        "received_at": ("received_at", "timestamptz"),
        "title": ("coalesce(title, '')", "text"),
        "filename": ("coalesce(filename, '')", "text"),
        "external_id": ("coalesce(external_id, '')", "text"),
        "collection": ("coalesce(collection, '')", "text"),
        "document_date": (
            "to_char(coalesce(document_date, (received_at at time zone 'UTC')::date), "
            "'YYYY-MM-DD')",
            "text",
        ),
        "state": ("state", "text"),
        "chunks_count": ("chunks_count", "bigint"),
        "bytes": ("coalesce((blob ->> 'size')::bigint, 0)", "bigint"),
    },
    "received_at:desc",
)
FIRST_PAGE = DOCUMENT_ORDER.parse(None, None)
MAX_OCCURRENCES = 20
"""Most mentions to return for one entity of a document."""


class PgDocuments(PgStore):
    """Documents as dictionaries in the shapes of the HTTP responses.

    Documents that the caller may not read are treated as missing. Every method may raise
    DatabaseUnavailable.
    """

    def __init__(self, pool: Pool, stages: Mapping[str, bool] = NO_OTHER_STAGES) -> None:
        """`stages` are those that a document's status lists: name → whether it has a reaction."""
        super().__init__(pool)
        self._stages = stages
        # Many uploads arrive at the same time.
        self._content_checks = CallBatcher(self._check_contents)

    async def find_documents(
        self,
        caller: Principal,
        *,
        external_id: str | None,
        collection: str | None,
        tag: str | None,
        state: str | None,
        text: str | None = None,
        date_from: date | None = None,
        date_to: date | None = None,
        name: str | None = None,
        sort: str | None = None,
        after: str | None,
        limit: int,
    ) -> tuple[list[Body], str | None]:
        """Return a page of documents, in `DOCUMENT_ORDER`, and the next cursor.

        Withdrawn documents are included only if `state` selects them. Raises InvalidRequest for an
        unknown order, and if `after` is not a cursor of it.
        """
        order = DOCUMENT_ORDER.parse(sort, after)
        # Finds events that failed at ingress and were stored under the derived id only.
        id_by_name = ids.make_document_id(caller.tenant, "", external_id) if external_id else None
        rows = await self._fetch_bodies(
            "documents",
            caller.tenant,
            None,
            external_id,
            collection,
            tag,
            state,
            order.last_value,
            order.last_id,
            limit + 1,
            id_by_name,
            caller.readers,
            caller.id,
            text,
            date_from,
            date_to,
            name,
            *ids.find_id_range(name),
            **order.substitutions,
        )
        page, next_cursor = order.split_page(rows, limit, "document_id")
        bodies = [_to_document_body(row, caller) for row in page]
        return await self._add_waiting(caller, bodies), next_cursor

    async def _add_waiting(self, caller: Principal, bodies: list[Body]) -> list[Body]:
        """Add the stage for which each unfinished document waits."""
        running = {body["document_id"]: body for body in bodies if body["state"] == "running"}
        if running:
            for row in await self._fetch(
                "document_status", caller.tenant, None, list(running), caller.readers
            ):
                lines = build_stage_lines(dict(row))
                running[row["document_id"]] |= _find_waiting(
                    row["state"], lines, row["received_at"]
                )
        return bodies

    async def fetch_document(self, caller: Principal, document_id: UUID) -> Body | None:
        """Return the document with its status, or None.

        Includes documents that are withdrawn, still at ingress, or failed there.
        """
        rows = await self._fetch_bodies(
            "documents",
            caller.tenant,
            document_id,
            *([None] * 6),
            1,
            None,
            caller.readers,
            caller.id,
            *([None] * 6),
            **FIRST_PAGE.substitutions,
        )
        status = await self.fetch_status(caller, document_id=document_id)
        if not rows and status is None:
            return None
        return (_to_document_body(rows[0], caller) if rows else UNSEEN_DOCUMENT) | (status or {})

    async def has_content(self, tenant: str, document_id: UUID, sha256: str) -> bool:
        """Return whether any revision of the document has these bytes."""
        return await self._content_checks.run((tenant, document_id, sha256))

    async def _check_contents(self, contents: Sequence[tuple[str, UUID, str]]) -> list[bool]:
        return await self._fetch_column("have_contents", *map(list, zip(*contents, strict=True)))

    async def fetch_revisions(
        self, caller: Principal, document_id: UUID, *, after: int | None, limit: int
    ) -> tuple[list[Body], int | None]:
        """Return the newest revisions first; `after` is a revision number."""
        rows = await self._fetch_bodies(
            "revisions", caller.tenant, document_id, after, limit + 1, caller.readers
        )
        return split_page(rows, limit, lambda row: int(row["revision"]))

    async def fetch_chunks(
        self, caller: Principal, document_id: UUID, *, after: int, limit: int
    ) -> tuple[list[Body], int | None]:
        rows = await self._fetch_bodies(
            "document_chunks", caller.tenant, document_id, after, limit + 1, caller.readers
        )
        return split_page(rows, limit, lambda row: int(row["ordinal"]))

    async def fetch_entities(
        self, caller: Principal, document_id: UUID, *, after: str | None, limit: int
    ) -> tuple[list[Body], str | None]:
        """Return the entities that the visible revision mentions, the most frequent first.

        Raises InvalidRequest if `after` is not a cursor of this list.
        """
        mentions, last_id = parse_count_cursor(after)
        rows = await self._fetch_bodies(
            "document_entities",
            caller.tenant,
            document_id,
            caller.readers,
            mentions,
            last_id,
            limit + 1,
            MAX_OCCURRENCES,
        )
        return split_page(rows, limit, lambda row: format_count_cursor(row["mentions"], row["id"]))

    async def fetch_revision_file(
        self, caller: Principal, document_id: UUID, revision: int
    ) -> Body | None:
        """Return name, media type, hash and blob of a revision's file; superseded ones included."""
        rows = await self._fetch(
            "revision_file", caller.tenant, document_id, revision, caller.readers
        )
        return dict(rows[0]) if rows else None

    async def fetch_text(
        self, caller: Principal, document_id: UUID, revision: int | None = None
    ) -> DocumentText | None:
        """Return the visible text. That of another revision exists only until it is superseded."""
        rows = await self._fetch(
            "document_text", caller.tenant, document_id, caller.readers, revision
        )
        return DocumentText(**rows[0]) if rows else None

    async def fetch_status(
        self,
        caller: Principal,
        *,
        document_id: UUID | None = None,
        job_id: UUID | None = None,
        event_id: str | None = None,
        source: str | None = None,
    ) -> Body | None:
        """Return the status of a document's latest revision, of a job, or of a producer's event.

        A job's id is the id of its event. Returns None if nothing is known yet. `waiting` is
        `{stage, since, progress}` until it is searchable.
        """
        # A job has the internal id of its event, which derives from the producer's.
        if job_id is None and event_id is not None:
            job_id = make_received_id(caller.tenant, source or "", event_id)
        if job_id is None and document_id is None:
            return None
        rows = await self._fetch(
            *("document_status", caller.tenant, job_id),
            None if document_id is None else [document_id],
            caller.readers,
        )
        if rows:
            row = dict(rows[0])
            lines = build_stage_lines(row, self._stages)
            return {
                **_find_waiting(row["state"], lines, row["received_at"]),
                "ingestion_job_id": row["accepted_id"],
                "document_id": row["document_id"],
                "external_id": row["external_id"],
                "state": row["state"],
                "stages": lines,
                "chunks_count": row["chunks"] if row["state"] == "searchable" else 0,
                "tokens_estimate": row["tokens"],
                "warnings": [*(row["warnings"] or []), *_collect_warnings(row)],
                "revision": row["revision"],
                "content_sha256": row["content_sha256"],
            }
        if job_id is None:
            [job_id] = [
                row["event_id"]
                for row in await self._fetch(
                    "latest_event", caller.tenant, document_id, caller.readers, caller.id
                )
            ] or [None]
        return (
            await self._fetch_ingress_status(caller, job_id, event_id, source)
            if job_id is not None
            else None
        )

    async def fetch_counts(self, tenant: str | None) -> dict[str, int]:
        """Return the number of documents per state, of one tenant or of all."""
        return await self._fetch_pairs("document_counts", tenant)

    async def list_document_events(
        self, caller: Principal, document_id: UUID, *, after: int, limit: int
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Return the attempts of all stages in order of time, and the next `after`, the number to
        skip.

        Keys: `revision, generation, stage, part, state, attempts, topic, partition, offset,
        started_at, duration_ms, error`. The list is empty for an unknown document. Raises
        DatabaseUnavailable.
        """
        rows = await self._fetch_bodies(
            "document_events", caller.tenant, document_id, after, limit + 1, caller.readers
        )
        return split_page(rows, limit, lambda _: after + limit)

    async def filter_readable(self, caller: Principal, document_ids: Collection[UUID]) -> set[UUID]:
        """Return the subset of these documents that the caller may read."""
        if not document_ids:
            return set()
        rows = await self._fetch(
            "readable_documents", caller.tenant, list(document_ids), caller.readers
        )
        return {row["id"] for row in rows}

    async def _fetch_ingress_status(
        self, caller: Principal, job_id: UUID, event_id: str | None, source: str | None
    ) -> Body | None:
        [row] = await self._fetch_bodies(
            "ingress_status",
            *(caller.tenant, job_id, event_id, source),
            *(make_derived_id("receive", "", job_id, 0), caller.readers, caller.id),
        )
        if not row["is_known"] and row["dead_letter"] is None:
            return None
        state, lines = resolve_ingress_state(row), [build_ingress_line(row)]
        return {
            **_find_waiting(state, lines, row["created_at"]),
            "ingestion_job_id": job_id,
            "document_id": row["document_id"],
            "external_id": row["external_id"],
            "state": state,
            "stages": lines,
            "chunks_count": 0,
            "tokens_estimate": 0,
            "warnings": [],
        }


def _find_waiting(state: str, lines: list[Body], since: datetime | None) -> Body:
    line = find_pending_stage(lines) if state in ("accepted", "running") else None
    return (
        {"waiting": {"since": since, "stage": line["stage"], "progress": line.get("progress")}}
        if line
        else {}
    )


def _to_document_body(body: Body, caller: Principal) -> Body:
    del body["generation"]
    body.pop("sort_value", None)
    # A caller with limited access must not learn who else has access.
    if caller.readers is not None:
        del body["readers"]
    return body | {"bytes": body["blob"]["size"] if body["blob"] else None}


def _collect_warnings(row: Body) -> list[Body]:
    """Return warnings about a document that is already searchable."""
    if row["state"] != "searchable":
        return []
    if row["unchanged"] and row["visible"] != row["ord"]:
        return [
            {
                "code": "UNCHANGED",
                "detail": (
                    f"Revision {row['revision']} has the same content as the visible revision, "
                    "which stays visible."
                ),
            }
        ]
    graph_dead_letters = [
        dead_letter
        for dead_letter in row["dead_letters"]
        if dead_letter["stage"] in ("extract", "graph")
    ]
    if graph_dead_letters:
        return [
            {
                "code": "GRAPH_INCOMPLETE",
                "detail": f"Entities could not be extracted: {graph_dead_letters[-1]['detail']}",
            }
        ]
    if any(line["stage"] == "graph" and line["state"] != "done" for line in build_stage_lines(row)):
        return [
            {
                "code": "GRAPH_PENDING",
                "detail": (
                    "Entities are still being extracted. Lexical and semantic search already find "
                    "this document."
                ),
            }
        ]
    return []
