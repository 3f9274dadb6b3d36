"""A test set of files with ground truth: `manifest.jsonl`, `files/` and `ground_truth/`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class TestFile:
    """A file with its ground truth.

    `truth_kind` is exact-text, reference-ocr-text, reference-markdown, table-cells, table-csv,
    unit-tests or None.
    """

    __test__ = False

    path: Path
    name: str
    media_type: str | None
    language: str | None
    kinds: tuple[str, ...]
    truth_kind: str | None
    truth: Path | None


def read_documents_set(folder: Path) -> list[TestFile]:
    """Read the test set. Raises InvalidRequest if the folder is invalid."""
    try:
        lines = (folder / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
        return [_parse_file(folder, json.loads(line)) for line in lines if line.strip()]
    except (OSError, json.JSONDecodeError, KeyError) as error:
        raise InvalidRequest(
            f"{folder} is not a document test set: {error}",
            code="NOT_A_TEST_SET",
            remedy=(
                "Add manifest.jsonl with one line per file: {file, mime, kinds, ground_truth, ground_truth_kind}."
            ),
        ) from error


def _parse_file(folder: Path, entry: dict[str, Any]) -> TestFile:
    truth_name = entry.get("ground_truth")
    path = folder / entry["file"]
    return TestFile(
        path,
        entry["file"],
        entry.get("mime"),
        entry.get("language"),
        tuple(entry.get("kinds") or ()),
        entry.get("ground_truth_kind"),
        folder / truth_name if truth_name else None,
    )
