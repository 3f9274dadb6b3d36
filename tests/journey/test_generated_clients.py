"""Clients generated from the OpenAPI document are complete, typed, and talk to a running API.

The TypeScript client needs `make clients` (npm), and is skipped without.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.server_process import run_up

ROOT = Path(__file__).parents[2]
OPENAPI_FILE = ROOT / "docs/reference/openapi.json"
PROGRAMS = ROOT / "tests/support/generated_clients"
NODE_MODULES = ROOT / "build/typescript-client/node_modules"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with run_up(tmp_path_factory.mktemp("clients") / "data") as (_, server):
        yield server


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def test_generated_python_client_is_typed_and_works(server: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("post_hooks: []\n")
    shutil.copy(PROGRAMS / "use_client.py", tmp_path)
    printed = run(
        *(Path(sys.executable).with_name("openapi-python-client"), "generate", "--meta", "none"),
        *("--path", OPENAPI_FILE, "--config", "config.yaml", "--output-path", "anabranch_client"),
        folder=tmp_path,
    )
    assert "Warning" not in printed and "Unable" not in printed, printed
    python = (sys.executable, "-m")
    run(*python, "mypy", "--strict", "--follow-imports=silent", "use_client.py", folder=tmp_path)
    assert run(
        sys.executable, "use_client.py", server["url"], server["token"], folder=tmp_path
    ).endswith("ok\n")


@pytest.mark.skipif(not NODE_MODULES.exists(), reason="needs `make clients` (npm)")
def test_generated_typescript_client_is_typed_and_works(
    server: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copy(PROGRAMS / "use_client.ts", tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    programs = NODE_MODULES / ".bin"
    run(
        *(programs / "openapi-typescript", OPENAPI_FILE, "-o", "anabranch.d.ts"),
        # Fields with a default may be left out of requests.
        "--default-non-nullable=false",
        folder=tmp_path,
    )
    options = ("--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom")
    run(programs / "tsc", *options, "use_client.ts", folder=tmp_path)
    assert run("node", "use_client.js", server["url"], server["token"], folder=tmp_path).endswith(
        "ok\n"
    )
