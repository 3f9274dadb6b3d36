"""The files, chunker and embedder that every system gets. Needs only numpy."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

DIMENSION = 384
WINDOW_WORDS, OVERLAP_WORDS = 150, 30
CALLS_VARIABLE = "PEER_CALLS"
"""Environment variable with the path of the file that counts the calls of the embedder."""
Vector = NDArray[np.float32]
ChunkKey = tuple[str, int]
"""File name and ordinal of a chunk."""


@dataclass(frozen=True)
class AdapterArguments:
    docs: Path
    dsn: str
    state: Path
    mode: Literal["once", "live"]

    @property
    def is_live(self) -> bool:
        return self.mode == "live"


def parse_adapter_arguments() -> AdapterArguments:
    parser = argparse.ArgumentParser()
    parser.add_argument("--docs", type=Path, required=True)
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--mode", choices=["once", "live"], default="once")
    return AdapterArguments(**vars(parser.parse_args()))


def compute_vector(text: str) -> Vector:
    """Derive a unit vector from the text's hash."""
    digest = hashlib.shake_256(text.encode()).digest(DIMENSION * 2)
    values = np.frombuffer(digest, dtype="<i2").astype(np.float32)
    return cast(Vector, values / np.linalg.norm(values))


def embed(texts: Sequence[str]) -> list[Vector]:
    """Embed the texts, and count the call in the file named by PEER_CALLS."""
    if path := os.environ.get(CALLS_VARIABLE):
        # One short append per call: it survives kill -9 and needs no lock between processes.
        with Path(path).open("a") as calls:
            calls.write(f"{len(texts)}\n")
    return [compute_vector(text) for text in texts]


def split_text(text: str) -> list[str]:
    """Cut the text into windows of 150 words that share 30 with the next, whitespace kept."""
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    windows = []
    for start in range(0, len(spans), WINDOW_WORDS - OVERLAP_WORDS):
        end = min(start + WINDOW_WORDS, len(spans))
        windows.append(text[spans[start][0] : spans[end - 1][1]])
        if end == len(spans):
            break
    return windows


def list_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.md"))


def compute_expected_chunks(folder: Path) -> dict[ChunkKey, str]:
    return {
        (path.name, ordinal): chunk
        for path in list_files(folder)
        for ordinal, chunk in enumerate(split_text(path.read_text()))
    }


def load_corpus(path: Path, count: int) -> dict[str, str]:
    """Return Markdown by file name from the first lines of a JSONL file: `id`, `title`, `text`."""
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in islice(lines, count)]
    return {f"{row['id']}.md": _format_markdown(row["title"], row["text"]) for row in rows}


def _format_markdown(title: str, text: str) -> str:
    sentences = re.split(r"(?<=[.!?]) +", text.strip())
    paragraphs = [" ".join(sentences[start : start + 3]) for start in range(0, len(sentences), 3)]
    return "\n\n".join([f"# {title.strip()}", *paragraphs]) + "\n"


def write_files(folder: Path, texts: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)


def edit_file(path: Path, marker: str) -> None:
    """Replace the first words of one paragraph, so that only the chunks over them change."""
    paragraphs = path.read_text().split("\n\n")
    middle = len(paragraphs) // 2
    paragraphs[middle] = " ".join([marker, *paragraphs[middle].split(" ")[3:]])
    # Moved into place from outside the watched folder, so that no system reads half a file.
    draft = path.parent.parent / f"draft-{path.name}"
    draft.write_text("\n\n".join(paragraphs))
    draft.replace(path)
