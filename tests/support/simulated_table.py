"""A changing table and the events that Debezium would write for it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from schemas.topics import Record
from streams.sources.column_values import PLACEHOLDER

TOPIC = "shop.public.notes"


@dataclass
class SimulatedTable:
    """`rows` by key. Every change grows the log's position; a text that an update leaves alone is
    written as the placeholder, as large texts are.
    """

    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    lsn: int = 1000

    def insert(self, key: int, body: str, title: str = "") -> None:
        self.rows[key] = {"title": title, "body": body}
        self._append_change("c", key, self._row_image(key))

    def update_title(self, key: int, title: str) -> None:
        self.rows[key]["title"] = title
        self._append_change("u", key, self._row_image(key) | {"body": PLACEHOLDER})

    def update_body(self, key: int, body: str) -> None:
        self.rows[key]["body"] = body
        self._append_change("u", key, self._row_image(key))

    def change_key(self, key: int, new_key: int) -> None:
        """The primary key changes: a `d`, a tombstone, and a `c` that knows the text as little as
        an update would.
        """
        self.rows[new_key] = self.rows.pop(key)
        self._advance_lsn()
        self._append_delete(key, {"__debezium.newkey": {"id": new_key}})
        self._append_event(
            "c",
            new_key,
            self._row_image(new_key) | {"body": PLACEHOLDER},
            {"__debezium.oldkey": {"id": key}},
        )

    def delete(self, key: int) -> None:
        del self.rows[key]
        self._advance_lsn()
        self._append_delete(key, {})

    def truncate(self) -> None:
        self.rows.clear()
        self._advance_lsn()
        value = {
            "before": None,
            "after": None,
            "source": self._source_fields("false"),
            "op": "t",
            "ts_ms": 0,
        }
        self.records.append(Record(TOPIC, None, json.dumps(value).encode()))

    def delete_uncaptured(self, key: int) -> None:
        """Delete a row while the connector is down and its slot is lost."""
        del self.rows[key]
        self._advance_lsn()

    def snapshot(self) -> None:
        """Read all rows again; deleted ones are not mentioned."""
        self._advance_lsn()
        for number, key in enumerate(self.rows, 1):
            self._append_event(
                "r",
                key,
                self._row_image(key),
                {},
                "last_in_data_collection" if number == len(self.rows) else "true",
            )

    def _row_image(self, key: int) -> dict[str, Any]:
        return {"id": key, **self.rows[key]}

    def _append_change(self, op: str, key: int, after: dict[str, Any]) -> None:
        self._advance_lsn()
        self._append_event(op, key, after, {})

    def _append_delete(self, key: int, headers: dict[str, Any]) -> None:
        value = {
            "before": {"id": key, "title": "", "body": ""},
            "after": None,
            "source": self._source_fields("false"),
            "op": "d",
            "ts_ms": 0,
        }
        written = {name: json.dumps(header).encode() for name, header in headers.items()}
        self.records.append(Record(TOPIC, _encode_key(key), json.dumps(value).encode(), written))
        self.records.append(Record(TOPIC, _encode_key(key), None))

    def _append_event(
        self,
        op: str,
        key: int,
        after: dict[str, Any],
        headers: dict[str, Any],
        snapshot: str = "false",
    ) -> None:
        value = {
            "before": None,
            "after": after,
            "source": self._source_fields(snapshot),
            "op": op,
            "ts_ms": 0,
            "transaction": None,
        }
        written = {name: json.dumps(header).encode() for name, header in headers.items()}
        self.records.append(Record(TOPIC, _encode_key(key), json.dumps(value).encode(), written))

    def _source_fields(self, snapshot: str) -> dict[str, Any]:
        return {
            "connector": "postgresql",
            "name": "shop",
            "db": "shop",
            "schema": "public",
            "table": "notes",
            "lsn": self.lsn,
            "snapshot": snapshot,
        }

    def _advance_lsn(self) -> None:
        self.lsn += 8


def _encode_key(key: int) -> bytes:
    return json.dumps({"id": key}).encode()
