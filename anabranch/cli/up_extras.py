"""Open a browser and ingest the sample documents for `anabranch up`."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from pathlib import Path

from anabranch.cli.http_client import ApiClient
from anabranch.cli.ingest import format_summary
from anabranch.cli.ingest_batch import IngestBatch, expand_paths
from anabranch.cli.output import print_stderr
from anabranch.process.data_folder import ServerInfo
from schemas.errors import AnabranchError

# The wheel contains the first folder.
SAMPLE_FOLDERS = (
    Path(__file__).parents[1] / "_samples",
    Path(__file__).parents[2] / "samples" / "corpus",
)
SAMPLE_TAG = "sample"
SAMPLE_TIMEOUT_S = 600.0


def open_browser(address: str, *, quiet: bool) -> None:
    """Open a page in the person's browser, or say that there is none."""

    def run() -> None:
        if not has_screen() or not webbrowser.open(address):
            print_stderr("no browser was found; open the link above yourself", quiet=quiet)

    # A browser may run in the foreground, and must not keep the server from stopping.
    threading.Thread(target=run, daemon=True).start()


def has_screen() -> bool:
    """Report whether a graphical browser can be opened: others do not run the web UI."""
    variables = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    return sys.platform != "linux" or any(os.environ.get(name) for name in variables)


async def ingest_samples(server: ServerInfo, *, quiet: bool) -> None:
    """Ingest the sample documents and wait for them. The server recognizes them the next time.

    Failures are reported to stderr, and the server continues.
    """
    folder = next((folder for folder in SAMPLE_FOLDERS if folder.is_dir()), None)
    if folder is None:
        print_stderr("error: This installation contains no sample documents. Install it again.")
        return
    try:
        items, _ = expand_paths((str(folder),), glob="*", recursive=False)
        batch = IngestBatch(items, tags=(SAMPLE_TAG,), wait_s=SAMPLE_TIMEOUT_S)
        print_stderr(f"ingesting {len(items)} sample documents…", quiet=quiet)
        async with ApiClient(server.url, server.token) as client:
            await batch.run(client)
    except AnabranchError as error:
        print_stderr(f"error: sample documents: {error.detail} [{error.code}]")
        return
    print_stderr(f"sample documents: {format_summary(items)}", quiet=quiet)
