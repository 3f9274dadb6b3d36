"""A retrieval test set: `corpus.jsonl`, `queries.jsonl`, `qrels.tsv`, and optionally `meta.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.errors import InvalidRequest

_EXPECTED_FORMAT = "The folder needs corpus.jsonl (lines of {id, title, text}), queries.jsonl (lines of {id, text}) and qrels.tsv (query-id, corpus-id, score)."


@dataclass(frozen=True, slots=True)
class TestDocument:
    __test__ = False

    id: str
    title: str | None
    text: str


@dataclass(frozen=True, slots=True)
class TestQuery:
    __test__ = False

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class RetrievalSet:
    """`relevant` has the documents with a score of 1 or more by query. Unlisted pairs are not
    relevant.
    """

    name: str
    language: str | None
    documents: tuple[TestDocument, ...]
    queries: tuple[TestQuery, ...]
    relevant: Mapping[str, Mapping[str, int]]


def read_retrieval_set(folder: Path) -> RetrievalSet:
    """Read the test set. Raises InvalidRequest with the file and line."""
    meta = _read_meta(folder / "meta.json")
    documents = tuple(
        _parse_document(line, location) for location, line in _read_lines(folder / "corpus.jsonl")
    )
    queries = tuple(
        TestQuery(
            str(_require_field(line, "id", location)), str(_require_field(line, "text", location))
        )
        for location, line in _read_lines(folder / "queries.jsonl")
    )
    return RetrievalSet(
        folder.name, meta.get("language"), documents, queries, _read_relevant(folder / "qrels.tsv")
    )


def _read_meta(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def _parse_document(line: Mapping[str, Any], location: str) -> TestDocument:
    return TestDocument(
        str(_require_field(line, "id", location)),
        line.get("title") or None,
        str(_require_field(line, "text", location)),
    )


def _read_lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(_read_text(path).splitlines(), 1):
        if line.strip():
            location = f"{path.name} line {number}"
            try:
                yield location, json.loads(line)
            except json.JSONDecodeError as error:
                raise _invalid_format(f"{location} is not valid JSON: {error.msg}.") from error


def _read_relevant(path: Path) -> dict[str, dict[str, int]]:
    relevant: dict[str, dict[str, int]] = {}
    for number, line in enumerate(_read_text(path).splitlines()[1:], 2):
        parts = line.split("\t")
        if len(parts) != 3 or not parts[2].strip().lstrip("-").isdigit():
            raise _invalid_format(
                f"{path.name} line {number} is not query-id, corpus-id and score separated by tabs."
            )
        if int(parts[2]) >= 1:
            relevant.setdefault(parts[0], {})[parts[1]] = int(parts[2])
    return relevant


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise _invalid_format(f"Cannot read {path}: {error.strerror}.") from error


def _require_field(line: Mapping[str, Any], name: str, location: str) -> Any:
    if name not in line:
        raise _invalid_format(f"{location} has no field {name!r}.")
    return line[name]


def _invalid_format(detail: str) -> InvalidRequest:
    return InvalidRequest(detail, code="NOT_A_TEST_SET", remedy=_EXPECTED_FORMAT)
