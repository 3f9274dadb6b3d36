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
from engines.parse.dates import parse_document_date
from engines.parsed_blocks import ParsedBlock, ParsedPart

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.S)
_FORMULA = re.compile(r"\A\$\$.*\$\$\Z|\A\\\[.*\\\]\Z", re.S)
_PARSER = MarkdownIt("commonmark").enable("table")


def read(data: bytes) -> ParsedPart:
    decoded = text.decode_text(data)
    front_matter, body = _split_front_matter(decoded.text)
    blocks = list(_iter_blocks(body))
    title = _find_value(front_matter, "title") or next(
        (block.text for block in blocks if block.level == 1), None
    )
    return ParsedPart(
        blocks,
        title=title,
        language=_find_value(front_matter, "lang", "language"),
        document_date=parse_document_date(_find_value(front_matter, "date")),
        notices=list(decoded.notices),
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


def _iter_blocks(source: str) -> Iterator[ParsedBlock]:
    lines = source.split("\n")
    tokens = _PARSER.parse(source)
    for i, token in enumerate(tokens):
        if token.level == 0 and token.map and token.nesting >= 0:
            yield from _iter_token_blocks(
                token,
                tokens[i + 1] if i + 1 < len(tokens) else None,
                "\n".join(lines[token.map[0] : token.map[1]]).rstrip(),
            )


def _iter_token_blocks(token: Token, inner: Token | None, source: str) -> Iterator[ParsedBlock]:
    match token.type:
        case "heading_open":
            words = " ".join(inner.content.split()) if inner else ""
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
        case "html_block":
            yield from html.read(source.encode()).blocks
        case "paragraph_open" | "blockquote_open":
            yield ParsedBlock("formula" if _FORMULA.match(source) else "paragraph", source)
