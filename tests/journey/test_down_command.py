from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from anabranch.process.database import POSTGRES_FOLDER
from sql.embedded.host import find_free_port
from sql.embedded.server import EmbeddedPostgres, find_relocated_tables, resolve_state_folder
from tests.support.server_process import STOP_TIMEOUT_S, run_anabranch, run_up

requires_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root, to run Postgres as another account"
)


def test_down_stops_server_and_keeps_data_folder(folder: Path) -> None:
    port = find_free_port(0)
    with run_up(folder, "--postgres-port", str(port)) as (first, _):
        printed = first.stdout_file.read_text()
        assert f"127.0.0.1:{port}" in printed and "passfile=" in printed
        done = run_anabranch("down", "--data", str(folder))
        assert done.returncode == 0, done.stderr
        assert first.process.wait(STOP_TIMEOUT_S) == 0
    assert not EmbeddedPostgres(folder / POSTGRES_FOLDER).is_running
    assert (
        run_anabranch("down", "--data", str(folder), "--json").stdout.count('"stopped": false') == 1
    )


def test_down_erase_deletes_all_files(folder: Path) -> None:
    assert run_anabranch("ingest", "--data", str(folder), "-", stdin="A text.").returncode == 0
    elsewhere = find_relocated_tables(folder / POSTGRES_FOLDER)
    assert run_anabranch("down", "--erase", "--data", str(folder)).returncode == 2, (
        "nobody confirmed it"
    )
    assert folder.exists()
    done = run_anabranch("down", "--erase", "--yes", "--data", str(folder))
    assert done.returncode == 0, done.stderr
    assert not folder.exists()
    assert elsewhere is None or not elsewhere.exists()


def test_down_erase_rejects_foreign_folder(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "one.txt").write_text("Dear")
    done = run_anabranch("down", "--erase", "--yes", "--data", str(tmp_path / "letters"))
    assert done.returncode == 3, done.stderr
    assert (tmp_path / "letters" / "one.txt").exists()


@requires_root
def test_up_reports_external_table_folder_and_removal_command(folder: Path) -> None:
    with run_up(folder) as (first, _):
        place = resolve_state_folder((folder / POSTGRES_FOLDER).resolve())
        assert (
            str(place) in first.stdout_file.read_text()
            and "down --erase" in first.stdout_file.read_text()
        )
    shutil.rmtree(folder)
    refused = run_anabranch("up", "--data", str(folder), "--port", "0")
    assert (
        refused.returncode == 2
        and "TABLES_LEFT_BEHIND" in refused.stderr
        and "down --erase" in refused.stderr
    )
    shutil.rmtree(folder)
    assert run_anabranch("down", "--erase", "--yes", "--data", str(folder)).returncode == 0
    assert not place.exists()
