"""Markdown (CommonMark with pipe tables) by markdown-it-py. Blocks keep their source text; headings are normalised to `#` marks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from engines.drafts import Draft, Piece
from engines.parse import html, text

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.S)
_FORMULA = re.compile(r"\A\$\$.*\$\$\Z|\A\\\[.*\\\]\Z", re.S)


def read(data: bytes) -> Piece:
    decoded = text.decode(data)
    about, body = _front_matter(decoded.text)
    drafts = list(_drafts(body))
    title = _said(about, "title") or next((draft.text for draft in drafts if draft.level == 1), None)
    return Piece(drafts, title=title, language=_said(about, "lang", "language"), date=_said(about, "date"), notices=list(decoded.notices))


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("table")


def _front_matter(source: str) -> tuple[dict[str, object], str]:
    """YAML between two `---` lines at the top, where it is a mapping, and the rest."""
    found = _FRONT_MATTER.match(source)
    if not found:
        return {}, source
    try:
        about = yaml.safe_load(found[1])
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}, source
    return (about, source[found.end() :]) if isinstance(about, dict) else ({}, source)


def _said(about: dict[str, object], *names: str) -> str | None:
    return next((str(about[name]) for name in names if about.get(name)), None)


def _drafts(source: str) -> Iterator[Draft]:
    lines = source.split("\n")
    tokens = _parser().parse(source)
    for i, token in enumerate(tokens):
        if token.level == 0 and token.map and token.nesting >= 0:
            yield from _draft(token, tokens[i + 1] if i + 1 < len(tokens) else None, "\n".join(lines[token.map[0] : token.map[1]]).rstrip())


def _draft(token: Token, inner: Token | None, source: str) -> Iterator[Draft]:
    match token.type:
        case "heading_open":
            words = " ".join(inner.content.split()) if inner else ""
            if words:
                yield Draft("heading", words, level=int(token.tag[1]))
        case "fence" | "code_block":
            yield Draft("code", source, language=token.info.split()[0] if token.info.strip() else None)
        case "table_open":
            yield Draft("table", source, header_end=len("\n".join(source.split("\n")[:2])))
        case "bullet_list_open" | "ordered_list_open":
            yield Draft("list", source)
        case "html_block":
            yield from html.read(source.encode()).drafts
        case "paragraph_open" | "blockquote_open":
            yield Draft("formula" if _FORMULA.match(source) else "paragraph", source)
