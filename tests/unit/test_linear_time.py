"""Every pattern, and every function that reads untrusted text, takes linear time."""

from __future__ import annotations

import asyncio
import os
import string
from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from api.sessions import BrowserSessions, SessionCookieMiddleware, find_cookie
from engines.chunk import FixedSizeChunker, StructureChunker
from engines.extract.rules import extract_by_rules
from engines.http_fetcher import extract_filename
from engines.language import FastTextLanguageDetector, estimate_tokens, find_sentences, fold_name
from engines.parse import html_tree
from retrieval.question.words import extract_content_words
from schemas.generations import ChunkConfig
from schemas.values import Block, BlockKind, ChildChunk, ParentChunk, Span, Transcript
from tests.support.repetitions import draw_examples
from tests.unit.regex_patterns import (
    REPEATED_UNITS,
    PatternUse,
    find_superlinear_growth,
    generate_prefixes,
    list_pattern_uses,
)

DOCUMENT_ID = UUID(int=1)
SCREENING_SIZES = (400, 1_600, 6_400)
"""A quadratic pattern is caught here, before it could hold the longer texts below for hours."""
IS_EXHAUSTIVE = "ATTACK_EXAMPLES" in os.environ
FULL_SIZES = (250_000, 1_000_000) if IS_EXHAUSTIVE else (62_500, 250_000)
"""A quadratic pattern takes seconds for the shorter ones too, of which each costs a quarter."""
NOISE_S = 0.02
MAX_GROWTH = 8.0
"""Times that four times the text may take: 4 for linear time, 16 for quadratic."""


def _find_superlinear(
    work: Callable[[str], object], units: set[str], sizes: tuple[int, ...]
) -> list[str]:
    return [
        fault
        for unit in sorted(units)
        if (fault := find_superlinear_growth(work, unit, sizes, NOISE_S, MAX_GROWTH))
    ]


@pytest.fixture(scope="module")
def patterns() -> list[PatternUse]:
    return list_pattern_uses()


def test_every_pattern_takes_linear_time(
    patterns: list[PatternUse], record_property: Callable[[str, object], None]
) -> None:
    assert len(patterns) > 100
    record_property(
        "attempts", sum(len({*REPEATED_UNITS, *generate_prefixes(use.pattern)}) for use in patterns)
    )
    faults = {
        use.name: wrong
        for use in patterns
        if (
            wrong := _find_superlinear(
                use, {*REPEATED_UNITS, *generate_prefixes(use.pattern)}, SCREENING_SIZES
            )
        )
    }
    assert not faults


def test_quadratic_pattern_is_detected() -> None:
    import re

    slow = PatternUse("slow", re.compile(r"[.!?]+\s"), frozenset({"finditer"}))
    # A busy machine may hide one step of growth, hence one more.
    assert _find_superlinear(slow, {"."}, (*SCREENING_SIZES, 25_600))


def _chunk_blocks(kind: BlockKind) -> Callable[[str], object]:
    def cut(text: str) -> None:
        span = Span(char_start=0, char_end=len(text))
        block = Block(kind=kind, span=span, header_end=0 if kind == "table" else None)
        transcript = Transcript(markdown=text, blocks=[block])
        # Small, so that the shortest texts are split too, which costs more than not to.
        config = ChunkConfig(parent_tokens=200, child_tokens=50, whole_tokens=50)
        StructureChunker(config).chunk(DOCUMENT_ID, "title", transcript)

    return cut


def _chunk_fixed_size(text: str) -> None:
    transcript = Transcript(
        markdown=text, blocks=[Block(kind="paragraph", span=Span(char_start=0, char_end=len(text)))]
    )
    FixedSizeChunker(ChunkConfig(strategy="fixed_size")).chunk(DOCUMENT_ID, None, transcript)


def _extract_entities(text: str) -> None:
    child = ChildChunk(
        id=DOCUMENT_ID,
        ordinal=0,
        text=text,
        prefix="",
        char_start=0,
        char_end=len(text),
        spans=[],
        tokens=1,
    )
    extract_by_rules(
        [
            ParentChunk(
                id=DOCUMENT_ID,
                ordinal=0,
                text=text,
                section="",
                char_start=0,
                char_end=len(text),
                pages=[],
                tokens=1,
                children=[child],
            )
        ]
    )


TEXT_FUNCTIONS: dict[str, Callable[[str], object]] = {
    "sentences": find_sentences,
    "tokens": estimate_tokens,
    "extract": _extract_entities,
    "names": fold_name,
    "languages": FastTextLanguageDetector().detect,
    "words": extract_content_words,
    "html": html_tree.parse_html,
    "closed html": lambda text: html_tree.parse_html(f"{text}-->]]>"),
    "fixed": _chunk_fixed_size,
    **{kind: _chunk_blocks(kind) for kind in ("paragraph", "table", "list", "code")},
}


@pytest.mark.parametrize("name", TEXT_FUNCTIONS)
def test_every_text_function_takes_linear_time(name: str) -> None:
    more = {"Mr. Ab ", "Ab Cd $1 ", "$1 a@b.c ", "Ab Cd, ", "1. A ", "a. A "}
    more |= {'Ab Inc. (the "Cd") ', "Ab Cd (AC) ", '(the "Ab', "Ab Inc. hereinafter Cd "}
    assert not _find_superlinear(
        TEXT_FUNCTIONS[name], {*REPEATED_UNITS, *more}, (500, 2_000, 8_000)
    )


HEADER_FUNCTIONS: dict[str, Callable[[str], object]] = {
    "own cookie": lambda text: find_cookie(text.encode(), "anabranch_session_0"),
    "quoted cookie": lambda text: find_cookie(f'a="{text}"'.encode(), "a"),
    "request with cookies": lambda text: request_with_cookie(f'a="{text}"'),
    "file name": lambda text: extract_filename(f'attachment; filename="{text}', "/a"),
    "file name of parts": lambda text: extract_filename(f"attachment; filename*0={text}", "/a"),
    "file name in a path": lambda text: extract_filename("", f"/{text}"),
}
HEADER_UNITS = {
    *REPEATED_UNITS,
    "\\",
    '\\"',
    ";",
    "; a",
    "=",
    "*0*=",
    "%",
    "a=b; ",
    "?=",
    "=?utf-8?b?",
}


def request_with_cookie(cookie: str) -> None:
    """Send the cookie through the middleware to an application that parses what it gets."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert Request(scope).cookies == {}

    header = (b"cookie", cookie.encode("latin-1", "replace"))
    scope = {"type": "http", "method": "GET", "path": "/livez", "headers": [header]}
    sessions = BrowserSessions("t" * 43)
    asyncio.run(SessionCookieMiddleware(app, sessions)(scope, None, None))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", HEADER_FUNCTIONS)
def test_every_header_function_takes_linear_time(name: str) -> None:
    assert not _find_superlinear(HEADER_FUNCTIONS[name], HEADER_UNITS, (1_000, 4_000, 16_000))


LONG_NOISE_S = 0.15
"""Patterns that back out step by step take fresh memory for their stack, which costs 13 times as
much at 1 MB as at 250 KB, and 4 times more at 4 MB.
"""
LONG_UNITS = (".", "A-", "111 ", "a.", "aaaa@", "1", "Mr. ", "x. ", "a,", " ", "\n", "<")
N_SHARDS = 1 if IS_EXHAUSTIVE else 6
"""Each pattern gets every such text in `make attack`, and two of the twelve in the suite."""


@pytest.mark.parametrize("unit", LONG_UNITS)
def test_every_pattern_takes_linear_time_for_long_texts(
    unit: str, patterns: list[PatternUse], record_property: Callable[[str, object], None]
) -> None:
    chosen = [
        use
        for number, use in enumerate(patterns)
        if (number + LONG_UNITS.index(unit)) % N_SHARDS == 0
    ]
    record_property("attempts", len(chosen))
    # The short texts first: a quadratic pattern would hold the long ones for hours.
    assert not [
        wrong
        for use in chosen
        if (
            wrong := find_superlinear_growth(use, unit, SCREENING_SIZES, NOISE_S, MAX_GROWTH)
            or find_superlinear_growth(use, unit, FULL_SIZES, LONG_NOISE_S, MAX_GROWTH)
        )
    ]


@pytest.mark.parametrize("unit", LONG_UNITS)
def test_sentence_splitting_of_long_texts_takes_linear_time(unit: str) -> None:
    assert not find_superlinear_growth(find_sentences, unit, FULL_SIZES, 0.05, MAX_GROWTH)


TEXTS = st.text(alphabet=string.ascii_letters[:6] + "AB. ,;-!?12@\n\t|#[]()*_é€$/:", max_size=60)


@draw_examples(300)
@given(TEXTS)
def test_linear_patterns_match_same_as_plain_patterns(text: str) -> None:
    """The patterns match like their plain forms, which may take quadratic time."""
    import re

    from engines.chunk import chunk_builder
    from engines.extract import rules
    from engines.language import _CANDIDATE
    from retrieval.ranking import quote_candidates

    plain = re.compile(
        r"""(?P<stop>[.!?…]+)(?P<close>["'”’»)\]*_`]*)(?P<space>\s+)"""
        r"""|[。！？]+["'”’」』)]*\s*|\n\s*\n+|\n(?=[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t])"""
    )
    assert [match.span() for match in _CANDIDATE.finditer(text)] == [
        match.span() for match in plain.finditer(text)
    ]
    ends = re.compile(
        r"(?:(?<=[.!?])|(?<=[.!?][\"”»)]))\s+(?=[\"“«(]?[A-ZÀ-Ý0-9])|\s*\n[\s>#*-]*|\s*\|\s*"
    )
    assert [match.span() for match in rules._SENTENCE_END.finditer(text)] == [
        match.span() for match in ends.finditer(text)
    ]
    assert chunk_builder._HEADING_MARKS.sub("", text) == re.sub(r"^#{1,6}\s+|\s+#+\s*$", "", text)
    rule = re.match(r"\|?[\s:|-]*-[\s:|-]*\|[\s:|-]*$", text)
    assert (quote_candidates._TABLE_RULE.match(text) is None) == (rule is None)


def test_unclosed_html_comment_is_kept_as_text() -> None:
    assert html_tree.parse_html("<p>a</p><!-- b").get_text() == "a<!-- b"
    assert html_tree.parse_html("<p>a<!-- b --> c</p><![if x]>d<![endif]>").get_text() == "a cd"


def test_invalid_charset_and_front_matter_fall_back() -> None:
    from engines.parse import html, markdown

    for charset in ("rot13", "undefined", "base64", "idna"):
        page = (
            f'<html><head><meta charset="{charset}"></head>'
            "<body><p>caf\xe9 au lait</p></body></html>"
        ).encode("cp1252")
        assert html.read(page).blocks[0].text == "café au lait"
    for front in ("a: " + "1" * 5_000, "a: " + "[" * 20_000):
        assert markdown.read(f"---\n{front}\n---\n\n# Kept\n".encode()).blocks[-1].text == "Kept"
    assert html.read(
        b"<table><tr><td colspan='"
        + b"9" * 5_000
        + b"'>a</td><td>b</td></tr><tr><td>c</td><td>d</td></tr></table>"
    ).blocks
