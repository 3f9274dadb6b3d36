"""Assembly of parts into a transcript: drops running headers, sets levels and offsets. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from engines.layout.text_blocks import UNDECIDED_HYPHEN, join_lines
from engines.parsed_blocks import ParsedBlock, ParsedPart, has_header, is_label
from schemas.values import Block, RawCell, Span, Transcript

_BLOCK_SEPARATOR = "\n\n"


def assemble_transcript(parts: Sequence[ParsedPart], *, pages: int | None) -> Transcript:
    """Assemble the transcript of a document.

    Its warnings are those of the parts, without the plan's.
    """
    parsed_blocks = assign_levels(
        complete_tables(
            _resolve_line_hyphens(
                _join_divided_sentences(
                    remove_running_headers(
                        [
                            parsed_block
                            for part in parts
                            for parsed_block in part.blocks
                            if parsed_block.text.strip()
                        ]
                    )
                )
            )
        )
    )
    markdown, blocks = _join_blocks(parsed_blocks)
    return Transcript(
        markdown=markdown,
        blocks=blocks,
        title=_first_text(part.title for part in parts),
        language=_first_text(part.language for part in parts),
        pages=pages,
        ocr_pages=sorted({page for part in parts for page in part.ocr_pages}),
        document_date=next((part.document_date for part in parts if part.document_date), None),
        warnings=list(dict.fromkeys(notice for part in parts for notice in part.notices)),
    )


def _join_divided_sentences(blocks: Sequence[ParsedBlock]) -> list[ParsedBlock]:
    """Join the paragraphs that a page break divides within a sentence.

    The joined block has the page and box of its beginning.
    """
    joined: list[ParsedBlock] = []
    last_pages: dict[int, int] = {}
    for block in blocks:
        upper = joined[-1] if joined else None
        if (
            upper is not None
            and block.page is not None
            and upper.page is not None
            and upper.kind == block.kind == "paragraph"
            and block.page == last_pages.get(id(upper), upper.page) + 1
            and (block.text[:1].islower() or upper.text.endswith((",", "-", "\u2010")))
            and not upper.text.endswith(_SENTENCE_ENDS)
            and len(upper.text) >= _MIN_DIVIDED_CHARACTERS
        ):
            upper.text = join_lines([upper.text, block.text])
            last_pages[id(upper)] = block.page
        else:
            joined.append(block)
    return joined


_SENTENCE_ENDS = (".", "!", "?", ":", ";", "…", "”", '"', "»")
_MIN_DIVIDED_CHARACTERS = 25
"""Shorter paragraphs before a page break are labels rather than sentences."""


def _resolve_line_hyphens(blocks: list[ParsedBlock]) -> list[ParsedBlock]:
    """Decide the hyphens at line ends by the words of all blocks, in place."""
    if any(UNDECIDED_HYPHEN in block.text for block in blocks):
        words = count_words(block.text for block in blocks)
        for block in blocks:
            end = block.header_end or 0
            head = resolve_hyphens(block.text[:end], words)
            block.text = head + resolve_hyphens(block.text[end:], words)
            if block.header_end is not None:
                block.header_end = len(head)
    return blocks


def _first_text(values: Iterable[str | None]) -> str | None:
    return next((value.strip() for value in values if value and value.strip()), None)


def _join_blocks(parsed_blocks: Sequence[ParsedBlock]) -> tuple[str, list[Block]]:
    texts, blocks, offset = [], [], 0
    for parsed_block in parsed_blocks:
        text = (
            f"{'#' * (parsed_block.level or 1)} {parsed_block.text}"
            if parsed_block.kind == "heading"
            else parsed_block.text
        )
        texts.append(text)
        blocks.append(_to_block(parsed_block, offset, len(text)))
        offset += len(text) + len(_BLOCK_SEPARATOR)
    return _BLOCK_SEPARATOR.join(texts), blocks


def _to_block(parsed_block: ParsedBlock, start: int, length: int) -> Block:
    span = Span(
        char_start=start,
        char_end=start + length,
        page=parsed_block.page,
        box=parsed_block.box,
        element=parsed_block.element,
        sheet=parsed_block.sheet,
        cells=parsed_block.cells,
        start_s=parsed_block.start_s,
        end_s=parsed_block.end_s,
        raw_cells=[
            RawCell(char_start=start + first, char_end=start + last, raw_value=value)
            for first, last, value in parsed_block.raw_cells or ()
        ]
        or None,
    )
    header_end = None if parsed_block.header_end is None else start + parsed_block.header_end
    return Block(
        kind=parsed_block.kind,
        span=span,
        level=parsed_block.level if parsed_block.kind == "heading" else None,
        language=parsed_block.language,
        header_end=header_end,
    )


# Level 6 is left for numbered headings below these.
_MAX_LEVEL = 5
_SIZE_TOLERANCE = 0.05
_MAX_PAGES_WITHOUT_COVER = 3
_NUMBER = re.compile(
    r"(?:(?:chapter|section|cap[ií]tulo|se[cç][aã]o|artigo|article|part|parte)\s+)?"
    r"(\d{1,3}(?:\.\d{1,3})*)\.?\s",
    re.I,
)

HeadingStyle = tuple[float, bool]
"""Size, and whether not in capitals. Larger sizes rank first; within a size, capitals do."""


def assign_levels(blocks: Sequence[ParsedBlock]) -> list[ParsedBlock]:
    """Set the level of each heading that has a size, in place.

    The most prominent style gets level 1, down to level 5; sizes within 5 % count as one. Styles
    that occur on the cover only get level 1. A number such as 2.3.1 puts a heading below the level
    of headings numbered 2.
    """
    headings = [block for block in blocks if block.kind == "heading" and block.size is not None]
    styles = _classify_styles(headings)
    ranks = _rank_styles(headings, styles)
    top_levels = [
        ranks[style]
        for block, style in zip(headings, styles, strict=True)
        if _count_number_depth(block.text) == 1
    ]
    for block, style in zip(headings, styles, strict=True):
        depth = _count_number_depth(block.text)
        block.level = (
            min(6, min(top_levels) + depth - 1)
            if depth > 1 and top_levels
            else min(_MAX_LEVEL, ranks[style])
        )
    return list(blocks)


def _classify_styles(headings: Sequence[ParsedBlock]) -> list[HeadingStyle]:
    sizes = sorted({block.size or 0.0 for block in headings}, reverse=True)
    size_classes: dict[float, float] = {}
    for size in sizes:
        last = next(reversed(size_classes.values()), None)
        size_classes[size] = (
            last if last is not None and size >= last * (1 - _SIZE_TOLERANCE) else size
        )
    return [(size_classes[block.size or 0.0], not block.text.isupper()) for block in headings]


def _rank_styles(
    headings: Sequence[ParsedBlock], styles: Sequence[HeadingStyle]
) -> dict[HeadingStyle, int]:
    pages = {block.page for block in headings if block.page is not None}
    cover_styles: set[HeadingStyle] = set()
    # Styles that occur on the first page only, if several later pages have headings.
    if len(pages) > _MAX_PAGES_WITHOUT_COVER:
        first_page = min(pages)
        cover_styles = set(styles) - {
            style for block, style in zip(headings, styles, strict=True) if block.page != first_page
        }
    ordered_styles = sorted(set(styles), key=lambda style: (-style[0], style[1]))
    inner_styles = [style for style in ordered_styles if style not in cover_styles]
    return dict.fromkeys(cover_styles, 1) | {
        style: i + (2 if cover_styles else 1) for i, style in enumerate(inner_styles)
    }


def _count_number_depth(text: str) -> int:
    number = _NUMBER.match(text)
    return number[1].count(".") + 1 if number else 0


_EDGE_SHARE = 0.12
_MIN_PAGES = 3
_DIGITS = re.compile(r"\d+|\b[ivxlc]+\b")
_WORD = re.compile(r"\w+")
_NUMBER_RUN = re.compile(r"\d{1,9}")
_ROMAN_EDGE = re.compile(r"^[ivxlc]+\s|\s[ivxlc]+$")
_MAX_VERSIONS = 3
_TITLE_BLOCKS = 4
_OF = re.compile(r"\s?(?:of|de|von|sur|/)\s?", re.I)
_PAGE_WORD = re.compile(
    r"(?:\b(?:page|p[aá]gina|pag\.|seite|folha|p\.|pg\.?)\s?|\b(?:of|de|von|sur)\s|[-–—|/]\s?)$",
    re.I,
)
_PAGE_NUMBER = re.compile(
    r"(?:page|p[aá]gina|p\.|pg\.?|-|–|—)?\s*\d{1,4}\s*(?:(?:of|de|/|-|–|—)\s*\d{0,4})?\.?", re.I
)


def remove_running_headers(blocks: Sequence[ParsedBlock]) -> list[ParsedBlock]:
    """Return the blocks without running headers, footers and page numbers.

    A running header is a short block in the outer eighth of a page whose text, numbers aside,
    occurs at the same edge of at least three pages and a fifth of all. Page numbers are removed
    there and as the first or last block of a page, in documents of at least two pages.

    Words of a running header that no other block holds are kept once, before all other text.
    """
    pages = _find_outermost_blocks(blocks)
    if len(pages) < 2:
        return list(blocks)
    # By identity: blocks with equal fields are equal, and cannot be hashed.
    outermost_ids = {id(block) for pair in pages.values() for block in pair}
    pages_by_pattern: dict[tuple[str, str], set[int | None]] = defaultdict(set)
    for block in blocks:
        if edge := _find_edge(block):
            pages_by_pattern[edge, _normalize_text(block.text)].add(block.page)
    running_patterns = {
        key
        for key, page_numbers in pages_by_pattern.items()
        if len(page_numbers) >= max(_MIN_PAGES, len(pages) / 5)
    }
    kept_blocks = []
    running_blocks: dict[tuple[str, str], list[ParsedBlock]] = {}
    for block in blocks:
        edge = _find_edge(block)
        is_page_number = _PAGE_NUMBER.fullmatch(block.text.strip()) and (
            edge is not None or id(block) in outermost_ids
        )
        is_running = edge is not None and (edge, _normalize_text(block.text)) in running_patterns
        if is_running and edge is not None and not is_page_number:
            running_blocks.setdefault((edge, _normalize_text(block.text)), []).append(block)
        elif not is_page_number:
            kept_blocks.append(block)
    return [*_keep_unique_headers(running_blocks.values(), kept_blocks), *kept_blocks]


def _keep_unique_headers(
    running_blocks: Iterable[Sequence[ParsedBlock]], kept_blocks: Sequence[ParsedBlock]
) -> Iterator[ParsedBlock]:
    """Yield each running header that says what no other block does, without its page number.

    A header whose numbers change a few times, other than with its pages, is kept for each of them.
    """
    held = [_list_words(block.text) for block in kept_blocks]
    # Title, date and publisher are often in blocks of their own.
    held.append(set().union(*held[:_TITLE_BLOCKS]))
    for blocks in running_blocks:
        counters = _find_counters(blocks)
        texts: dict[str, ParsedBlock] = {}
        for block in blocks:
            texts.setdefault(_drop_counters(block.text, counters), block)
        for text, block in list(texts.items())[: None if len(texts) <= _MAX_VERSIONS else 1]:
            words = _list_words(text)
            if any(word.isalpha() for word in words) and not any(words <= other for other in held):
                held.append(words)
                # A heading would stand above text that it is none of.
                yield replace(block, kind="paragraph", text=text, level=None, size=None)


def _list_words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def _find_counters(blocks: Sequence[ParsedBlock]) -> set[int]:
    """Return which of the header's numbers count its pages, those of `n of m` among them."""
    numbers = [_NUMBER_RUN.findall(block.text) for block in blocks]
    pages = [block.page or 0 for block in blocks]
    counters = {
        slot
        for slot, column in enumerate(zip(*numbers, strict=False))
        if len({int(number) - page for number, page in zip(column, pages, strict=True)}) == 1
    }
    totals = {slot + 1 for slot in counters if _find_page_total(blocks[0].text, slot)}
    return counters | totals


def _find_page_total(text: str, slot: int) -> bool:
    places = [match.span() for match in _NUMBER_RUN.finditer(text)]
    return slot + 1 < len(places) and bool(
        _OF.fullmatch(text[places[slot][1] : places[slot + 1][0]])
    )


def _drop_counters(text: str, counters: Collection[int]) -> str:
    """Return the header without its page numbers, and the words and signs that introduce these."""
    for slot, match in reversed(list(enumerate(_NUMBER_RUN.finditer(text)))):
        if slot in counters:
            before = _PAGE_WORD.sub("", text[: match.start()])
            text = before + text[match.end() :]
    return _ROMAN_EDGE.sub("", " ".join(text.split())).strip(" |·•-–—/,;:")


def _find_outermost_blocks(
    blocks: Sequence[ParsedBlock],
) -> dict[int | None, tuple[ParsedBlock, ParsedBlock]]:
    """Return the highest and the lowest block of each page."""
    outermost_by_page: dict[int | None, tuple[ParsedBlock, ParsedBlock]] = {}
    for block in blocks:
        if block.box:
            high, low = outermost_by_page.get(block.page, (block, block))
            outermost_by_page[block.page] = (
                min(high, block, key=_get_top),
                max(low, block, key=_get_top),
            )
    return outermost_by_page


def _get_top(block: ParsedBlock) -> float:
    return block.box[1] if block.box else 0.0


def _find_edge(block: ParsedBlock) -> str | None:
    if not block.box or len(block.text) > 200 or block.kind in ("table", "code"):
        return None
    if block.box[3] < _EDGE_SHARE:
        return "top"
    return "bottom" if block.box[1] > 1 - _EDGE_SHARE else None


def _normalize_text(text: str) -> str:
    return _DIGITS.sub("#", " ".join(text.lower().split()))


# Hyphens at line ends: part of the word, or only of its line.
# The layout keeps an undecided hyphen as `UNDECIDED_HYPHEN`; the whole document's words decide.

_LETTERS = r"[^\W\d_]+"
_HYPHENATED_WORD = re.compile(rf"{_LETTERS}(?:[-\u2010\u2011{UNDECIDED_HYPHEN}]{_LETTERS})*")
_TENS = frozenset(["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"])
_UNITS = re.compile(
    r"(?:one|two|three|four|five|six|seven|eight|nine|first|second|third)\b|\w+th\b"
)
_COMPOUND_STARTS = frozenset(
    """best cross double early fixed four five full half high large late long low multiple near
    open quasi second self short single small third three twenty two upper well whole year
    zero""".split()  # noqa: SIM905
)
"""First parts of words, measured in half of six collections of texts to have a hyphen after them
at least twice as often as not. In the other half they and `_MIN_PART` keep 26 % of the hyphens for
which a document has no other evidence, and 0.06 % of those that only the line needs."""
_MIN_PART = 4


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Count the words of texts, without those that a line's end divides."""
    words = Counter[str]()
    for text in texts:
        for word in _HYPHENATED_WORD.findall(text):
            if UNDECIDED_HYPHEN not in word:
                words[word.lower().replace("\u2010", "-").replace("\u2011", "-")] += 1
    return words


def resolve_hyphens(text: str, words: Counter[str]) -> str:
    """Drop each undecided hyphen, or keep it where the document or the parts speak for it."""
    if UNDECIDED_HYPHEN not in text:
        return text
    resolved = _HYPHENATED_WORD.sub(lambda match: _resolve_word(match[0], words), text)
    return resolved.replace(UNDECIDED_HYPHEN, "-")


def _resolve_word(word: str, words: Counter[str]) -> str:
    while UNDECIDED_HYPHEN in word:
        left, right = word.split(UNDECIDED_HYPHEN, 1)
        following = re.split(rf"[-\u2010\u2011{UNDECIDED_HYPHEN}]", right)[0]
        word = f"{left}-{right}" if _is_kept(left, following, words) else f"{left}{right}"
    return word


def _is_kept(left: str, right: str, words: Counter[str]) -> bool:
    left, right = left.lower(), right.lower()
    joined, hyphenated = words[left + right], words[f"{left}-{right}"]
    if joined != hyphenated:
        return hyphenated > joined
    if left in _COMPOUND_STARTS or (left in _TENS and _UNITS.fullmatch(right)):
        return True
    return min(len(left), len(right)) >= _MIN_PART and bool(words[left] and words[right])


# Tables of a paged document that its pages or columns divide, and tables of labels and values.

_CONTINUED = re.compile(
    r"(?:.*\W)?(?:continued|cont\.|continua[çc][ãa]o|continua|fortsetzung)\W*", re.I
)
_CELL_BORDER = re.compile(r"(?<!\\)\|")
_MAX_SHIFT, _MAX_WIDTH_CHANGE = 0.03, 0.12
"""Shares of the page by which the edges of two parts of one table differ: cells end ragged."""


def complete_tables(blocks: Sequence[ParsedBlock]) -> list[ParsedBlock]:
    """Give the rest of a table its header, in place; return tables of labels as lists."""
    tables = [
        block
        for block in blocks
        if block.kind == "table" or not (block.page and _CONTINUED.fullmatch(block.text))
    ]
    for upper, lower in pairwise(tables):
        if upper.kind == lower.kind == "table" and _continues(upper, lower):
            _repeat_header(upper, lower)
    for block in blocks:
        if block.kind == "table" and block.page:
            _format_pairs(block)
    return list(blocks)


def _continues(upper: ParsedBlock, lower: ParsedBlock) -> bool:
    """Return whether a table continues on the next page, or in the next column of the page."""
    if not (upper.page and lower.page and upper.box and lower.box):
        return False
    shift = lower.box[0] - upper.box[0]
    widening = (lower.box[2] - lower.box[0]) - (upper.box[2] - upper.box[0])
    is_in_place = (
        abs(shift) < _MAX_SHIFT
        if lower.page == upper.page + 1
        else lower.page == upper.page and lower.box[0] >= upper.box[2] - _MAX_SHIFT
    )
    return is_in_place and abs(widening) < _MAX_WIDTH_CHANGE


def _repeat_header(upper: ParsedBlock, lower: ParsedBlock) -> None:
    header, rows = _split_rows(upper), _split_rows(lower)
    if not any(header[0]) or len(header[0]) != len(rows[0]) or upper.header_end is None:
        return
    lines = lower.text.split("\n")
    first, delimiter, rest = lines[0], lines[1:2], lines[2:]
    if not delimiter or set(delimiter[0]) - set("|- "):
        return
    if any(rows[0]):
        # A name above values is a header of its own, which may repeat or differ.
        if rows[0] == header[0] or has_header(rows, by_convention=False):
            return
        rest.insert(0, first)
    head = upper.text[: upper.header_end]
    lower.text, lower.header_end = "\n".join([head, *rest]), len(head)


def _split_rows(block: ParsedBlock) -> list[list[str]]:
    """Return the cells of a table without its delimiter row."""
    lines = block.text.split("\n")
    return [
        [cell.strip() for cell in _CELL_BORDER.split(line)[1:-1]]
        for line in lines
        if set(line) - set("|- ") or line is lines[0]
    ]


def _format_pairs(block: ParsedBlock) -> None:
    """Format a table of two columns without a header as a list of labels and values."""
    rows = _split_rows(block)
    if any(rows[0]) or len(rows[0]) != 2 or len(rows) < 2:
        return
    pairs = rows[1:]
    if all(is_label(label) for label, _ in pairs):
        block.kind, block.header_end = "list", None
        block.text = "\n".join(
            f"- {label.rstrip(': ')}: {value}".rstrip() for label, value in pairs
        ).replace("\\|", "|")
