"""Render an HTML page with navigation and footer around the text."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from samples.renderers.blocks import SampleBlock

PAGE_TEMPLATE = """<!doctype html>
<html lang="pt">
<head><meta charset="utf-8"><title>{title}</title></head>
<body>
<nav><a href="/">Início</a> <a href="/servicos">Serviços</a> \
<a href="/contactos">Contactos</a></nav>
<main>
{body}
</main>
<footer>Município de Vila Corça, Largo da Azenha 1</footer>
</body>
</html>
"""


def render_html(blocks: Sequence[SampleBlock], title: str) -> bytes:
    return PAGE_TEMPLATE.format(
        title=escape(title), body="\n".join(_render_element(block) for block in blocks)
    ).encode()


def _render_element(block: SampleBlock) -> str:
    match block.kind:
        case "heading":
            return f"<h{block.level}>{escape(block.text)}</h{block.level}>"
        case "list":
            return "<ul>" + "".join(f"<li>{escape(item)}</li>" for (item,) in block.rows) + "</ul>"
        case "table":
            return (
                "<table>\n"
                + "\n".join(
                    _render_row(row, "td" if number else "th")
                    for number, row in enumerate(block.rows)
                )
                + "\n</table>"
            )
        case _:
            return f"<p>{escape(block.text)}</p>"


def _render_row(cells: list[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
