"""Generate the binary documents of the sample corpus from `source/`: `python -m samples.generate
[FOLDER]`.

All texts are written for this project, and everyone in them is fictional. Markdown, CSV and TXT
files in `corpus/` are not generated.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from samples.renderers.blocks import SampleBlock, parse_blocks
from samples.renderers.docx_document import render_docx
from samples.renderers.html_page import render_html
from samples.renderers.page import encode_png, render_pages, simulate_scan
from samples.renderers.pdf import render_image_pdf, render_text_pdf

HERE = Path(__file__).parent
SKEW_DEGREES = (0.6, -0.4)


def render_scan(blocks: Sequence[SampleBlock], title: str) -> bytes:
    return render_image_pdf(
        [
            simulate_scan(page, degrees=SKEW_DEGREES[number % 2], seed=number)
            for number, page in enumerate(render_pages(blocks))
        ],
        title,
    )


def render_picture(blocks: Sequence[SampleBlock], title: str) -> bytes:
    (page,) = render_pages(blocks)
    return encode_png(page)


RENDERERS: dict[str, Callable[[Sequence[SampleBlock], str], bytes]] = {
    "annual-report-2025.pdf": render_text_pdf,
    "contrato-ponte-sao-telmo.pdf": render_scan,
    "ferry-service-agreement.docx": render_docx,
    "regulamento-mercado.html": render_html,
    "notice-to-mariners.png": render_picture,
}


def main(folder: Path = HERE / "corpus") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, render in RENDERERS.items():
        blocks = parse_blocks(
            (HERE / "source" / name).with_suffix(".md").read_text(encoding="utf-8")
        )
        (folder / name).write_bytes(render(blocks, blocks[0].text))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
