"""A history of documents that change, are withdrawn and return."""

from __future__ import annotations

from tests.support.pipeline import Pipeline

WORDS = "heron stork crane rail coot grebe swan teal duck goose"
TEXTS: dict[str, str | None] = {
    f"doc-{number}": f"{WORDS}\nNumber {number} flies to Lisbon on 3 May 2026.\n{WORDS}"
    for number in range(40)
}
CHANGES: tuple[dict[str, str | None], ...] = (
    {"doc-1": "Quite another text.", "doc-2": "A second one."},
    {"doc-1": "And another one.", "doc-3": None, "doc-4": None},
    {"doc-4": "It came back.", "doc-5": TEXTS["doc-5"]},
)


async def push_history(at_work: Pipeline) -> None:
    await at_work.push_and_wait(TEXTS)
    for change in CHANGES:
        await at_work.push_and_wait(change)
