"""A retrieval test set in a folder: `corpus.jsonl`, `queries.jsonl`, `qrels.tsv`, and `meta.json` where there is one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.errors import InvalidRequest

_SHAPE = "The folder needs corpus.jsonl ({id, title, text} a line), queries.jsonl ({id, text} a line) and qrels.tsv (query-id, corpus-id, score)."


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
    """`relevant` holds per query the documents with a score of 1 or more; pairs that are not listed are not relevant."""

    name: str
    language: str | None
    documents: tuple[TestDocument, ...]
    queries: tuple[TestQuery, ...]
    relevant: Mapping[str, Mapping[str, int]]


def read_retrieval_set(folder: Path) -> RetrievalSet:
    """Raises InvalidRequest, naming the file and line that does not fit."""
    meta = _meta(folder / "meta.json")
    documents = tuple(_document(line, place) for place, line in _lines(folder / "corpus.jsonl"))
    queries = tuple(TestQuery(str(_field(line, "id", place)), str(_field(line, "text", place))) for place, line in _lines(folder / "queries.jsonl"))
    return RetrievalSet(folder.name, meta.get("language"), documents, queries, _relevant(folder / "qrels.tsv"))


def _meta(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def _document(line: Mapping[str, Any], place: str) -> TestDocument:
    return TestDocument(str(_field(line, "id", place)), line.get("title") or None, str(_field(line, "text", place)))


def _lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(_read(path).splitlines(), 1):
        if line.strip():
            place = f"{path.name} line {number}"
            try:
                yield place, json.loads(line)
            except json.JSONDecodeError as error:
                raise _bad(f"{place} is no JSON: {error.msg}") from error


def _relevant(path: Path) -> dict[str, dict[str, int]]:
    judged: dict[str, dict[str, int]] = {}
    for number, line in enumerate(_read(path).splitlines()[1:], 2):
        parts = line.split("\t")
        if len(parts) != 3 or not parts[2].strip().lstrip("-").isdigit():
            raise _bad(f"{path.name} line {number} is not query-id, corpus-id, score with tabs between")
        if int(parts[2]) >= 1:
            judged.setdefault(parts[0], {})[parts[1]] = int(parts[2])
    return judged


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise _bad(f"{path} cannot be read: {error.strerror}") from error


def _field(line: Mapping[str, Any], name: str, place: str) -> Any:
    if name not in line:
        raise _bad(f"{place} has no {name!r}")
    return line[name]


def _bad(detail: str) -> InvalidRequest:
    return InvalidRequest(detail, code="NOT_A_TEST_SET", remedy=_SHAPE)
