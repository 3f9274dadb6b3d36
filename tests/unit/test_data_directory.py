from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.cli import main
from anabranch.process.data_folder import OWN_NAMES, make_folder
from schemas.errors import ConfigurationError


@pytest.mark.parametrize(
    "command",
    [
        ("up", "--port", "0"),
        ("ingest", "/dev/null"),
        ("db", "migrate"),
        ("worker",),
        ("api", "--port", "0"),
        ("kafka", "start"),
    ],
)
def test_documents_folder_is_not_used_as_data_directory(
    command: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A worker lowers the priority of its process, which would last for all later tests of this one.
    monkeypatch.setenv("WORKER__NICENESS", "0")
    for name in ("lease.pdf", "map.png", "notes.txt", "plan.md"):
        (tmp_path / name).write_text("ours")
    before = sorted(tmp_path.iterdir())
    assert main([*command, "--data", str(tmp_path)]) == 2
    stderr = capsys.readouterr().err
    assert (
        f"{tmp_path} is not a data folder: it holds lease.pdf, map.png, notes.txt and 1 more. "
        "[NOT_A_DATA_FOLDER]"
    ) in stderr
    assert "--data" in stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "found",
    [
        [],
        [".gitkeep"],
        ["anabranch.toml"],
        ["postgres", "notes.txt"],
        ["blobs", "models", "tmp"],
        *([name] for name in sorted(OWN_NAMES)),
    ],
)
def test_empty_or_existing_data_directory_is_accepted(found: list[str], tmp_path: Path) -> None:
    for name in found:
        (tmp_path / name).mkdir()
    make_folder(tmp_path)
    make_folder(tmp_path / "new" / "one")


@pytest.mark.parametrize("found", ["profiles", "blobs", "kafka"])
def test_folder_of_another_program_is_not_used_as_data_directory(
    found: str, tmp_path: Path
) -> None:
    (tmp_path / found).mkdir()
    (tmp_path / "README.md").write_text("ours")
    with pytest.raises(ConfigurationError) as caught:
        make_folder(tmp_path)
    assert caught.value.code == "NOT_A_DATA_FOLDER"


def test_file_as_data_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError) as caught:
        make_folder(tmp_path / "file")
    assert caught.value.code == "DATA_DIR_UNUSABLE"
