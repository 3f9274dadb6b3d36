"""Write the binary documents of the sample corpus from the texts in `source/`: `python -m samples.make [FOLDER]`.

The texts are our own and everyone in them is invented. Markdown, CSV and TXT lie in `corpus/` as they were written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from samples.making.blocks import Block, read
from samples.making.page import pages, png, scanned
from samples.making.pdf import image_pdf, text_pdf
from samples.making.web import web
from samples.making.word import word

HERE = Path(__file__).parent
SKEW = (0.6, -0.4)


def scan(blocks: Sequence[Block], title: str) -> bytes:
    return image_pdf([scanned(page, degrees=SKEW[number % 2], seed=number) for number, page in enumerate(pages(blocks))], title)


def picture(blocks: Sequence[Block], title: str) -> bytes:
    (page,) = pages(blocks)
    return png(page)


MADE: dict[str, Callable[[Sequence[Block], str], bytes]] = {
    "annual-report-2025.pdf": text_pdf,
    "contrato-ponte-sao-telmo.pdf": scan,
    "ferry-service-agreement.docx": word,
    "regulamento-mercado.html": web,
    "notice-to-mariners.png": picture,
}


def main(folder: Path = HERE / "corpus") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, render in MADE.items():
        blocks = read((HERE / "source" / name).with_suffix(".md").read_text(encoding="utf-8"))
        (folder / name).write_bytes(render(blocks, blocks[0].text))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
