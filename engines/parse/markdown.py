"""Markdown reader (CommonMark with pipe tables) by markdown-it-py.

Blocks keep their source text, headings only their words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from engines.parse import html, text
from engines.parse.html_marks import format_raised
from engines.parse.scripts import format_note_mark, format_struck, format_subscript
from engines.parse.text import parse_document_date
from engines.parsed_blocks import ParsedBlock, ParsedPart
from schemas.values import Notice

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.S)
_FORMULA = re.compile(r"\A\$\$.*\$\$\Z|\A\\\[.*\\\]\Z", re.S)
_CODE_OR_FORMULA = re.compile(r"(?<!`)(`++).*?(?<!`)\1(?!`)|\$\$.+?\$\$|\$\S(?:[^$\n]*\S)?\$", re.S)
_MARK = re.compile(
    r"<(?P<tag>sup|sub|del|s|strike)\b[^<>]*>(?P<inner>[^<>]*(?:<a\b[^<>]*>[^<>]*</a>)?)</(?P=tag)>"
    r"|(?<=\S)\^(?P<raised>[^\s^\[\]]{1,20})\^|(?<=\w)~(?P<lowered>[^\s~]{1,20})~(?!~)",
    re.I,
)
_TAG = re.compile(r"<[^<>]*>")
_NOTE = re.compile(r"^[ \t]*(?:<sup>\[?(\w{1,3})\]?</sup>|\[\^(\w{1,3})\]:)", re.M | re.I)
_PARSER = MarkdownIt("commonmark").enable("table")


def read(data: bytes) -> ParsedPart:
    decoded = text.decode_text(data)
    front_matter, body = _split_front_matter(decoded.text)
    notices = list(decoded.notices)
    blocks = list(_iter_blocks(body, notices))
    title = _find_value(front_matter, "title") or next(
        (block.text for block in blocks if block.level == 1), None
    )
    return ParsedPart(
        blocks,
        title=title,
        language=_find_value(front_matter, "lang", "language"),
        document_date=parse_document_date(_find_value(front_matter, "date")),
        notices=notices,
    )


def _split_front_matter(source: str) -> tuple[dict[str, object], str]:
    """Split off YAML front matter between `---` lines; stays in the text unless it is a mapping."""
    match = _FRONT_MATTER.match(source)
    if not match:
        return {}, source
    try:
        front_matter = yaml.safe_load(match[1])
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}, source
    return (front_matter, source[match.end() :]) if isinstance(front_matter, dict) else ({}, source)


def _find_value(front_matter: dict[str, object], *names: str) -> str | None:
    return next((str(front_matter[name]) for name in names if front_matter.get(name)), None)


def _iter_blocks(source: str, notices: list[Notice]) -> Iterator[ParsedBlock]:
    note_labels = frozenset((match[1] or match[2]).lower() for match in _NOTE.finditer(source))
    lines = source.split("\n")
    tokens = _PARSER.parse(source)
    for i, token in enumerate(tokens):
        if token.level == 0 and token.map and token.nesting >= 0:
            if token.type == "html_block":
                part = html.read("\n".join(lines[token.map[0] : token.map[1]]).encode())
                notices += part.notices
                yield from part.blocks
                continue
            yield from _iter_token_blocks(
                token,
                tokens[i + 1] if i + 1 < len(tokens) else None,
                "\n".join(lines[token.map[0] : token.map[1]]).rstrip(),
                note_labels,
            )


def _format_marks(source: str, note_labels: frozenset[str]) -> str:
    """Write raised, lowered and struck text as other formats do, outside of code and formulas."""
    parts, end = [], 0
    for match in _CODE_OR_FORMULA.finditer(source):
        parts += [_format_text_marks(source[end : match.start()], note_labels), match[0]]
        end = match.end()
    return "".join([*parts, _format_text_marks(source[end:], note_labels)])


def _format_text_marks(source: str, note_labels: frozenset[str]) -> str:
    def replace(match: re.Match[str]) -> str:
        tag, inner = (match["tag"] or "").lower(), match["inner"] or ""
        words = match["raised"] or match["lowered"] or _TAG.sub("", inner)
        if match["lowered"] or tag == "sub":
            return format_subscript(words)
        if tag in ("del", "s", "strike"):
            return format_struck(words)
        if "<a" in inner or re.fullmatch(r"\[[^\[\]]+\]\(#[^()]*\)", words):
            return format_note_mark(words.partition("](")[0])
        # The block's line so far, not all of a long list.
        start = match.start()
        preceding = source[max(source.rfind("\n", 0, start) + 1, start - 40) : start]
        following = source[match.end() : match.end() + 5]
        return format_raised(words, preceding, following, note_labels)

    return _MARK.sub(replace, source)


def _iter_token_blocks(
    token: Token, inner: Token | None, source: str, note_labels: frozenset[str]
) -> Iterator[ParsedBlock]:
    if token.type not in ("fence", "code_block") and not _FORMULA.match(source):
        source = _format_marks(source, note_labels)
    match token.type:
        case "heading_open":
            words = _format_marks(" ".join(inner.content.split()), note_labels) if inner else ""
            if words:
                yield ParsedBlock("heading", words, level=int(token.tag[1]))
        case "fence" | "code_block":
            yield ParsedBlock(
                "code", source, language=token.info.split()[0] if token.info.strip() else None
            )
        # The first two lines are the header and the delimiter row.
        case "table_open":
            yield ParsedBlock("table", source, header_end=len("\n".join(source.split("\n")[:2])))
        case "bullet_list_open" | "ordered_list_open":
            yield ParsedBlock("list", source)
        case "paragraph_open" | "blockquote_open":
            yield ParsedBlock("formula" if _FORMULA.match(source) else "paragraph", source)
