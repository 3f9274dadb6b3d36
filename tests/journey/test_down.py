from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from anabranch.process.database import FOLDER
from sql.embedded import EmbeddedPostgres, state_folder, tables_elsewhere
from tests.journey.served import anabranch, up

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to run Postgres as another account")


def test_down_stops_the_server_and_keeps_the_folder(folder: Path) -> None:
    with up(folder) as (first, _):
        done = anabranch("down", "--data", str(folder))
        assert done.returncode == 0, done.stderr
        assert first.process.wait(30) == 0
    assert not EmbeddedPostgres(folder / FOLDER).running
    assert anabranch("down", "--data", str(folder), "--json").stdout.count('"stopped": false') == 1


def test_an_erased_data_folder_leaves_no_file_anywhere(folder: Path) -> None:
    assert anabranch("ingest", "--data", str(folder), "-", stdin="A text.").returncode == 0
    elsewhere = tables_elsewhere(folder / FOLDER)
    assert anabranch("down", "--erase", "--data", str(folder)).returncode == 2, "nobody confirmed it"
    assert folder.exists()
    done = anabranch("down", "--erase", "--yes", "--data", str(folder))
    assert done.returncode == 0, done.stderr
    assert not folder.exists()
    assert elsewhere is None or not elsewhere.exists()


def test_a_folder_that_is_not_ours_is_not_erased(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "one.txt").write_text("Dear")
    done = anabranch("down", "--erase", "--yes", "--data", str(tmp_path / "letters"))
    assert done.returncode == 3, done.stderr
    assert (tmp_path / "letters" / "one.txt").exists()


@as_root
def test_up_names_tables_outside_the_folder_and_what_removes_them(folder: Path) -> None:
    with up(folder) as (first, _):
        place = state_folder((folder / FOLDER).resolve())
        assert str(place) in first.out.read_text() and "down --erase" in first.out.read_text()
    shutil.rmtree(folder)
    refused = anabranch("up", "--data", str(folder), "--port", "0")
    assert refused.returncode == 2 and "TABLES_LEFT_BEHIND" in refused.stderr and "down --erase" in refused.stderr
    shutil.rmtree(folder)
    assert anabranch("down", "--erase", "--yes", "--data", str(folder)).returncode == 0
    assert not place.exists()


def test_another_port_of_postgres_is_shown_with_its_password_file(folder: Path) -> None:
    with up(folder, "--postgres-port", "24817") as (first, _):
        assert "127.0.0.1:24817" in first.out.read_text() and "passfile=" in first.out.read_text()
