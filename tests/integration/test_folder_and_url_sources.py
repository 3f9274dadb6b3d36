"""Folder and URL sources through the whole pipeline."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.source_environment import run_source_environment


def write_file(folder: Path, name: str, text: str) -> None:
    """Write atomically, with an age at which the source reads the file at once."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}")
    draft.write_text(text)
    os.utime(draft, (1_760_000_000 + len(text), 1_760_000_000 + len(text)))
    draft.replace(path)


async def test_folder_changes_while_stopped_are_picked_up(database: str, tmp_path: Path) -> None:
    folder = tmp_path / "library"
    write_file(folder, "a.md", "# A\n\nHerons stand.")
    write_file(folder, "deep/b.txt", "Egrets walk.")
    write_file(folder, "deep/skip.log", "Not this one.")
    write_file(folder, ".hidden/c.md", "Nor this.")
    takes = {"kind": "folder", "path": str(folder), "glob": "*.[mt][dx]*", "every_s": 0.2}
    async with run_source_environment(
        tmp_path / "data", database, f"ingest.folders={tmp_path}"
    ) as world:
        await world.add_source("library", takes, collection="birds", tags=["wild"])
        await world.wait_for_texts(
            "library", {"a.md": "# A\n\nHerons stand.", "deep/b.txt": "Egrets walk."}
        )
        row = await world.worker.storage.pool.fetchrow(
            "select collection, tags, filename, source_uri from documents "
            "where external_id = 'deep/b.txt'"
        )
        assert dict(row) == {
            "collection": "birds",
            "tags": ["wild"],
            "filename": "b.txt",
            "source_uri": (folder / "deep/b.txt").as_uri(),
        }
        write_file(folder, "a.md", "# A\n\nHerons fly now.")
        (folder / "deep/b.txt").rename(folder / "b.txt")
        write_file(folder, "new.md", "Storks arrive.")
        await world.wait_for_texts(
            "library",
            {"a.md": "# A\n\nHerons fly now.", "b.txt": "Egrets walk.", "new.md": "Storks arrive."},
        )
        (folder / "new.md").unlink()
        (folder / "b.txt").write_text("")
        await world.wait_for_texts("library", {"a.md": "# A\n\nHerons fly now."})
    write_file(folder, "a.md", "# A\n\nHerons are gone.")
    write_file(folder, "z.md", "Cranes came.")
    async with run_source_environment(
        tmp_path / "data", database, f"ingest.folders={tmp_path}"
    ) as world:
        await world.wait_for_texts(
            "library", {"a.md": "# A\n\nHerons are gone.", "z.md": "Cranes came."}
        )
        folder.rename(tmp_path / "elsewhere")
        failed = await eventually(
            lambda: world.fetch_source("library"), lambda source: source["state"] == "failed"
        )
        assert failed["status"]["code"] == "FOLDER_MISSING"
        assert set(await world.fetch_visible_texts("library")) == {"a.md", "z.md"}
        uploads = [path for path in (tmp_path / "data/blobs/uploads").rglob("*") if path.is_file()]
        assert uploads == [], "what was staged for the door goes when it is taken in"


async def test_last_change_time_follows_edits_moves_and_deletions(
    database: str, tmp_path: Path
) -> None:
    folder = tmp_path / "library"
    write_file(folder, "a.md", "Herons stand.")
    async with run_source_environment(
        tmp_path / "data", database, f"ingest.folders={tmp_path}"
    ) as world:
        await world.add_source("library", {"kind": "folder", "path": str(folder), "every_s": 0.1})
        await world.wait_for_texts("library", {"a.md": "Herons stand."})

        def edit() -> None:
            write_file(folder, "a.md", "Herons fly now.")

        for change, expected in (
            (edit, {"a.md": "Herons fly now."}),
            (lambda: (folder / "a.md").rename(folder / "b.md"), {"b.md": "Herons fly now."}),
            ((folder / "b.md").unlink, {}),
        ):
            await asyncio.sleep(0.5)  # until the source has noted the change before
            last = (await world.fetch_source("library"))["last_change_at"]
            change()
            await world.wait_for_texts("library", expected)
            await eventually(
                lambda: world.fetch_source("library"),
                lambda source, last=last: source["last_change_at"] > last,
            )


class EntityTagSite(BaseHTTPRequestHandler):
    """Serve pages by path with entity tags, and record the paths sent."""

    pages: dict[str, str] = {}
    sent_paths: list[str] = []

    def do_GET(self) -> None:
        text = self.pages.get(self.path)
        if text is None:
            self._answer(404, b"")
            return
        tag = f'"{len(text)}"'
        if self.headers.get("If-None-Match") == tag:
            self._answer(304, b"", tag)
            return
        self.sent_paths.append(self.path)
        self._answer(200, text.encode(), tag)

    def _answer(self, status: int, body: bytes, tag: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "text/plain")
        if tag:
            self.send_header("ETag", tag)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture
def site() -> Iterator[str]:
    EntityTagSite.pages, EntityTagSite.sent_paths = {}, []
    with ThreadingHTTPServer(("127.0.0.1", 0), EntityTagSite) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


async def test_urls_are_polled_and_ingested_only_when_changed(
    database: str, tmp_path: Path, site: str
) -> None:
    EntityTagSite.pages = {"/a": "Herons stand.", "/b": "Egrets walk."}
    a, b, absent = (f"http://{site}/{name}" for name in ("a", "b", "absent"))
    takes = {"kind": "urls", "urls": [a, b, absent], "every_s": 0.1, "withdraw_after_misses": 2}
    async with run_source_environment(
        tmp_path / "data", database, f"ingest.url_allow={site}", f"ingest.folders={tmp_path}"
    ) as world:
        await world.add_source("site", takes)
        await world.wait_for_texts("site", {a: "Herons stand.", b: "Egrets walk."})
        EntityTagSite.pages["/b"] = "Egrets walk away."
        await world.wait_for_texts("site", {a: "Herons stand.", b: "Egrets walk away."})
        assert EntityTagSite.sent_paths.count("/a") == 1
        del EntityTagSite.pages["/a"]
        await world.wait_for_texts("site", {b: "Egrets walk away."})
        EntityTagSite.pages["/a"] = "Herons stand."
        await world.wait_for_texts("site", {a: "Herons stand.", b: "Egrets walk away."})
        assert (await world.fetch_source("site"))["status"]["items"] == 2
