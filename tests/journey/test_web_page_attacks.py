"""Attacks on `up` by web pages in the owner's browser and by other local accounts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.support.eventually import eventually_blocking
from tests.support.server_process import UpProcess, open_http_client, run_anabranch, run_up


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[UpProcess, dict[str, Any]]]:
    with run_up(tmp_path_factory.mktemp("attacked") / "data") as found:
        yield found


@pytest.mark.parametrize("stolen", [False, True], ids=["without token", "with the token"])
def test_dns_rebinding_cannot_read_folder(
    server: tuple[UpProcess, dict[str, Any]], tmp_path: Path, stolen: bool
) -> None:
    """The page rebinds its name to 127.0.0.1, adds a folder source and searches it."""
    (tmp_path / "id_ed25519.txt").write_text("The private key of the owner is swordfish.")
    _, ready = server
    evil = f"rebind.evil.example:{urlsplit(ready['url']).port}"
    headers = {"Host": evil, "Origin": f"http://{evil}", "Sec-Fetch-Site": "same-origin"}
    with open_http_client(ready) as http:
        if not stolen:
            del http.headers["Authorization"]
        source = {"name": "pwn", "connector": {"kind": "folder", "path": str(tmp_path)}}
        for response in (
            http.post("/v1/sources", json=source, headers=headers),
            http.post("/v1/search", json={"query": "private key"}, headers=headers),
            http.get("/v1/documents", headers=headers),
            http.get("/readyz", headers=headers),
        ):
            assert (response.status_code, response.json()["code"]) == (421, "UNKNOWN_HOST")
    with open_http_client(ready) as owner:
        assert owner.get("/v1/sources").json()["items"] == []


def test_cross_site_form_cannot_write(server: tuple[UpProcess, dict[str, Any]]) -> None:
    _, ready = server
    headers = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
    with open_http_client(ready) as http:
        cookie = open_session_cookie(http)
        del http.headers["Authorization"]
        for given in ({}, {"Cookie": cookie}):
            form = http.post(
                "/v1/ingest", files={"file": ("a.md", b"planted")}, headers=headers | given
            )
            assert (form.status_code, form.json()["code"]) == (403, "FOREIGN_ORIGIN")
            for path in (
                "/v1/generations/g1/promote",
                "/v1/generations/rollback",
                "/v1/sources/reset?name=x",
            ):
                assert http.post(path, headers=headers | given).status_code == 403
                # An old browser that sends neither header.
                assert http.post(path, headers=given).status_code == 401
    with open_http_client(ready) as owner:
        assert owner.get("/v1/documents").json()["items"] == []


def test_login_link_works_once(server: tuple[UpProcess, dict[str, Any]]) -> None:
    process, ready = server
    link = re.search(r"http://\S+\?login=\S+", process.stdout_file.read_text())
    assert link is not None
    with httpx2.Client(base_url=ready["url"], follow_redirects=True) as browser:
        page = browser.get(link[0])
        assert (page.status_code, page.url.path) == (200, "/ui/")
        assert browser.get("/v1/documents").status_code == 200
    with httpx2.Client(base_url=ready["url"]) as thief:
        assert thief.get(link[0]).status_code == 401
    fresh = run_anabranch("open", "--data", ready["data_dir"])
    assert fresh.returncode == 0, fresh.stderr
    with httpx2.Client(base_url=ready["url"]) as browser:
        assert browser.get(fresh.stdout.strip()).status_code == 303


def open_session_cookie(http: httpx2.Client) -> str:
    opened = http.get(http.post("/v1/login-links").json()["url"])
    return str(opened.headers["set-cookie"].partition(";")[0])


def test_open_command_without_server_prints_hint(tmp_path: Path) -> None:
    found = run_anabranch("open", "--data", str(tmp_path / "nothing"))
    assert found.returncode == 3 and "anabranch up" in found.stderr
    assert not (tmp_path / "nothing").exists()


def test_local_cli_can_watch_folder_that_http_cannot(
    server: tuple[UpProcess, dict[str, Any]], tmp_path: Path
) -> None:
    _, ready = server
    library = tmp_path / "library"
    library.mkdir()
    (library / "a.md").write_text("# A\n\nHerons stand.\n")
    takes = {"kind": "folder", "path": str(library)}
    with open_http_client(ready) as http:
        refused = http.post("/v1/sources", json={"name": "library", "connector": takes})
        assert (refused.status_code, refused.json()["code"]) == (422, "FORBIDDEN_FOLDER")
        by_url = run_anabranch(
            "source",
            "add",
            "folder",
            "library",
            str(library),
            "--server",
            ready["url"],
            ANABRANCH_TOKEN=ready["token"],
        )
        assert by_url.returncode == 2 and "--data" in by_url.stderr
        added = run_anabranch(
            "source", "add", "folder", "library", str(library), "--data", ready["data_dir"]
        )
        assert added.returncode == 0, added.stderr
        eventually_blocking(
            lambda: http.get("/v1/documents", params={"state": "searchable"}).json()["items"],
            what=lambda: f"a document of {http.get('/v1/sources').json()}",
        )
        assert http.delete("/v1/sources/library", params={"withdraw": True}).status_code == 202


def test_data_folder_is_private_to_owner(server: tuple[UpProcess, dict[str, Any]]) -> None:
    folder = Path(server[1]["data_dir"])
    # As root, the group of the account that runs Postgres may pass through.
    assert folder.stat().st_mode & 0o777 == (0o710 if os.geteuid() == 0 else 0o700)
    for name in ("server.json", "master.key", "link.key", "approvals.json"):
        if (folder / name).exists():
            assert (folder / name).stat().st_mode & 0o777 == 0o600, name
