"""Questions that the sample documents and some more of our own answer, and near misses. Split by document."""

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
class Question:
    """`document`, in the language `written`, answers it where `answered`, and is what it is about otherwise; `says` are texts one of which a right quote holds."""

    document: str
    split: Split
    written: str
    language: str
    text: str
    answered: bool
    says: tuple[str, ...] = ()


def documents() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in folder.iterdir() if path.is_file())


def questions() -> list[Question]:
    listed: dict[str, Any] = yaml.safe_load((HERE / "questions.yaml").read_text(encoding="utf-8"))
    return [question for name, about in listed.items() for question in _of(name, about)]


def _of(name: str, about: dict[str, Any]) -> Iterator[Question]:
    for kind in ("answered", "near_miss"):
        for line in about[kind]:
            language = next(key for key in line if key != "says")
            says = tuple(line["says"].split("|")) if "says" in line else ()
            yield Question(name, about["split"], about["language"], language, line[language], kind == "answered", says)
