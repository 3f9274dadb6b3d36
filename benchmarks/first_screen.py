"""Two waits of a person: from the printed link to the first usable screen, and from the upload of
a one-page PDF to its green row.

Each round starts `up` in a new data folder, with Chromium already open. The second wait is also
given without the pipeline: to the event in `raw`, and from the event in `outcomes` to the screen.

python -m benchmarks.first_screen --rounds 5
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pypdfium2
from playwright.sync_api import Browser

from benchmarks.harness import print_report
from tests.support.browser import open_chromium

REPORT = Path(__file__).parents[1] / "samples/corpus/annual-report-2025.pdf"
# Both with the time of the page, to a frame.
USABLE = "() => document.querySelector('main textarea, main input:not([type=file])') && Date.now()"
GREEN = "() => document.querySelector('main tbody')?.innerText.includes('Searchable') && Date.now()"


def write_page(folder: Path) -> Path:
    source, page = pypdfium2.PdfDocument(REPORT), pypdfium2.PdfDocument.new()
    page.import_pages(source, [1])
    page.save(folder / "page.pdf")
    return folder / "page.pdf"


@contextmanager
def run_up(folder: Path) -> Iterator[tuple[str, float]]:
    """Yield the link that `up` prints, and when it did."""
    command = [sys.executable, "-m", "anabranch", "up", "--port", "0", "--data", str(folder)]
    with (
        (folder.parent / "up.log").open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            link = next(line.split()[1] for line in process.stdout if line.startswith("UI "))
            yield link, time.time()
        finally:
            process.terminate()


def measure(browser: Browser, folder: Path) -> dict[str, float]:
    page = browser.new_page()
    with run_up(folder / "data") as (link, printed_at):
        page.goto(link)
        usable_at = page.wait_for_function(USABLE).json_value() / 1000
        # As long as a person needs to find the file.
        page.goto(link.split("?")[0] + "ui/documents")
        page.wait_for_timeout(5000)
        page.get_by_role("button", name="Add documents").first.click()
        file, chooser = write_page(folder), page.locator("input[type=file]").first
        chooser.wait_for(state="attached")
        dropped_at = time.time()
        chooser.set_input_files(file)
        green_at = page.wait_for_function(GREEN).json_value() / 1000
        events = page.evaluate("() => fetch('/v1/events?after=begin').then(r => r.json())")
        page.close()
    appended = {
        event["topic"]: datetime.fromisoformat(event["appended_at"]).timestamp()
        for event in events["items"]
    }
    return {
        "link to screen": usable_at - printed_at,
        "upload to green row": green_at - dropped_at,
        "of it, to the event in raw": appended["raw"] - dropped_at,
        "of it, pipeline": appended["outcomes"] - appended["raw"],
        "of it, to the screen": green_at - appended["outcomes"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = []
    with open_chromium() as browser:
        for _ in range(parser.parse_args().rounds):
            with tempfile.TemporaryDirectory() as folder:
                rounds.append(measure(browser, Path(folder)))
    report: dict[str, Any] = {
        name: [round(f(one[name] for one in rounds), 3) for f in (min, statistics.median, max)]
        for name in rounds[0]
    }
    print_report(report)


if __name__ == "__main__":
    main()
