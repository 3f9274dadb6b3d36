"""No text takes time that grows faster than its length: every pattern, and every function that reads text of strangers."""

from __future__ import annotations

import os
import string
from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.chunk import FixedSizeChunker, StructureChunker
from engines.chunk.tokens import estimate
from engines.extract.rules import extract
from engines.languages import LiteLanguages
from engines.names import fold_name
from engines.parse import html_tree
from engines.sentences import RuleSentences
from retrieval.words import content_words
from schemas.generations import ChunkConfig
from schemas.values import Block, BlockKind, ChildChunk, ParentChunk, Span, Transcript
from tests.hostile_text import UNITS, Use, examples, growth, uses

DOCUMENT = UUID(int=1)
SCREENED = (400, 1_600, 6_400)
"""A quadratic pattern is caught here, before it could hold the longer texts below for hours."""
WHOLE = (250_000, 1_000_000)
NOISE_S = 0.02
MOST = 8.0
"""Times that four times the text may take: 4 for linear time, 16 for quadratic."""


def _faults(work: Callable[[str], object], units: set[str], sizes: tuple[int, ...]) -> list[str]:
    return [fault for unit in sorted(units) if (fault := growth(work, unit, sizes, NOISE_S, MOST))]


def test_every_pattern_takes_linear_time(record_property: Callable[[str, object], None]) -> None:
    found = uses()
    assert len(found) > 100
    record_property("attempts", sum(len({*UNITS, *examples(use.pattern)}) for use in found))
    faults = {use.name: wrong for use in found if (wrong := _faults(use, {*UNITS, *examples(use.pattern)}, SCREENED))}
    assert not faults


def test_a_quadratic_pattern_is_caught() -> None:
    import re

    slow = Use("slow", re.compile(r"[.!?]+\s"), frozenset({"finditer"}))
    assert _faults(slow, {"."}, SCREENED)


def _blocks(kind: BlockKind) -> Callable[[str], object]:
    def cut(text: str) -> None:
        span = Span(char_start=0, char_end=len(text))
        block = Block(kind=kind, span=span, header_end=0 if kind == "table" else None)
        transcript = Transcript(markdown=text, blocks=[block])
        StructureChunker(ChunkConfig()).chunk(DOCUMENT, "title", transcript)

    return cut


def _fixed(text: str) -> None:
    transcript = Transcript(markdown=text, blocks=[Block(kind="paragraph", span=Span(char_start=0, char_end=len(text)))])
    FixedSizeChunker(ChunkConfig(strategy="fixed_size")).chunk(DOCUMENT, None, transcript)


def _extract(text: str) -> None:
    child = ChildChunk(id=DOCUMENT, ordinal=0, text=text, prefix="", char_start=0, char_end=len(text), spans=[], tokens=1)
    extract([ParentChunk(id=DOCUMENT, ordinal=0, text=text, section="", char_start=0, char_end=len(text), pages=[], tokens=1, children=[child])])


FUNCTIONS: dict[str, Callable[[str], object]] = {
    "sentences": RuleSentences().split,
    "tokens": estimate,
    "extract": _extract,
    "names": fold_name,
    "languages": LiteLanguages().detect,
    "words": content_words,
    "html": html_tree.parse,
    "closed html": lambda text: html_tree.parse(f"{text}-->]]>"),
    "fixed": _fixed,
    **{kind: _blocks(kind) for kind in ("paragraph", "table", "list", "code")},
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_text_function_takes_linear_time(name: str) -> None:
    more = {"Mr. Ab ", "Ab Cd $1 ", "$1 a@b.c ", "Ab Cd, ", "1. A ", "a. A "}
    assert not _faults(FUNCTIONS[name], {*UNITS, *more}, (500, 2_000, 8_000))


MEGABYTE_NOISE_S = 0.15
"""Patterns that back out step by step take fresh memory for their stack, which costs 13 times as much at 1 MB as at 250 KB, and 4 times more at 4 MB."""
MEGABYTES = (".", "A-", "111 ", "a.", "aaaa@", "1", "Mr. ", "x. ", "a,", " ", "\n", "<")
TURNS = 1 if "ATTACK_EXAMPLES" in os.environ else 6
"""Each pattern gets every such megabyte in `make attack`, and two of the twelve in the suite."""


@pytest.fixture(scope="module")
def patterns() -> list[Use]:
    return uses()


@pytest.mark.parametrize("unit", MEGABYTES)
def test_every_pattern_takes_linear_time_for_a_megabyte(unit: str, patterns: list[Use], record_property: Callable[[str, object], None]) -> None:
    chosen = [use for number, use in enumerate(patterns) if (number + MEGABYTES.index(unit)) % TURNS == 0]
    record_property("attempts", len(chosen))
    # The short texts first: a quadratic pattern would hold the megabyte for hours.
    assert not [wrong for use in chosen if (wrong := growth(use, unit, SCREENED, NOISE_S, MOST) or growth(use, unit, WHOLE, MEGABYTE_NOISE_S, MOST))]


@pytest.mark.parametrize("unit", MEGABYTES)
def test_a_megabyte_of_hostile_text_takes_linear_time(unit: str) -> None:
    assert not growth(RuleSentences().split, unit, WHOLE, 0.05, MOST)


LETTERS = st.text(alphabet=string.ascii_letters[:6] + "AB. ,;-!?12@\n\t|#[]()*_é€$/:", max_size=60)


@given(LETTERS)
@settings(max_examples=300, deadline=None)
def test_linear_patterns_match_what_their_plain_forms_match(text: str) -> None:
    """The plain forms are what the patterns say without the marks that keep them linear."""
    import re

    from engines.chunk import sections
    from engines.extract import rules
    from engines.sentences import _CANDIDATE
    from retrieval.answer import quotables

    plain = re.compile(
        r"""(?P<stop>[.!?…]+)(?P<close>["'”’»)\]*_`]*)(?P<space>\s+)|[。！？]+["'”’」』)]*\s*|\n\s*\n+|\n(?=[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t])"""
    )
    assert [match.span() for match in _CANDIDATE.finditer(text)] == [match.span() for match in plain.finditer(text)]
    ends = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"”»)]))\s+(?=[\"“«(]?[A-ZÀ-Ý0-9])|\s*\n[\s>#*-]*|\s*\|\s*")
    assert [match.span() for match in rules._END.finditer(text)] == [match.span() for match in ends.finditer(text)]
    assert sections._MARKS.sub("", text) == re.sub(r"^#{1,6}\s+|\s+#+\s*$", "", text)
    rule = re.match(r"\|?[\s:|-]*-[\s:|-]*\|[\s:|-]*$", text)
    assert (quotables._DELIMITER.match(text) is None) == (rule is None)


def test_comment_that_nothing_closes_is_shown() -> None:
    assert html_tree.parse("<p>a</p><!-- b").words() == "a<!-- b"
    assert html_tree.parse("<p>a<!-- b --> c</p><![if x]>d<![endif]>").words() == "a cd"


def test_charset_and_front_matter_traps_fall_back() -> None:
    from engines.parse import html, markdown

    for charset in ("rot13", "undefined", "base64", "idna"):
        page = f'<html><head><meta charset="{charset}"></head><body><p>caf\xe9 au lait</p></body></html>'.encode("cp1252")
        assert html.read(page).drafts[0].text == "café au lait"
    for front in ("a: " + "1" * 5_000, "a: " + "[" * 20_000):
        assert markdown.read(f"---\n{front}\n---\n\n# Kept\n".encode()).drafts[-1].text == "Kept"
    assert html.read(b"<table><tr><td colspan='" + b"9" * 5_000 + b"'>a</td><td>b</td></tr><tr><td>c</td><td>d</td></tr></table>").drafts
