"""Questions that the sample documents answer, and near misses, split by document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

HERE = Path(__file__).parent
FOLDERS = (HERE.parents[1] / "samples" / "corpus", HERE / "documents")
Split = Literal["tune", "held_out"]


@dataclass(frozen=True, slots=True)
class RefusalQuestion:
    """A question about `document`, which answers it if `is_answerable`.

    A correct quote contains an `expected_quotes` text.
    """

    document: str
    split: Split
    document_language: str
    language: str
    text: str
    is_answerable: bool
    expected_quotes: tuple[str, ...] = ()


def list_documents() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in folder.iterdir() if path.is_file())


def load_questions() -> list[RefusalQuestion]:
    entries: dict[str, Any] = yaml.safe_load((HERE / "questions.yaml").read_text(encoding="utf-8"))
    return [
        question for name, entry in entries.items() for question in _parse_questions(name, entry)
    ]


def _parse_questions(name: str, entry: dict[str, Any]) -> Iterator[RefusalQuestion]:
    for kind in ("answered", "near_miss"):
        for line in entry[kind]:
            expected_quotes = tuple(line["says"].split("|")) if "says" in line else ()
            for language in sorted(line.keys() - {"says"}):
                yield RefusalQuestion(
                    name,
                    entry["split"],
                    entry["language"],
                    language,
                    line[language],
                    kind == "answered",
                    expected_quotes,
                )
