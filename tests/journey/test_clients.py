"""The Python clients, ours and one that a generator makes from the OpenAPI document, and the
TypeScript client on generated types are typed and talk to a running API.

The TypeScript client needs `make clients` (npm), and is skipped without.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.client import ApiError, AsyncClient, Client, QueryResponse, StepProgress
from tests.support.any_client import AnyClient
from tests.support.server_process import run_up

ROOT = Path(__file__).parents[2]
OPENAPI_FILE = ROOT / "docs/reference/openapi.json"
PROGRAMS = ROOT / "tests/support/clients"
CLIENT = ROOT / "clients/typescript"
PAGE = (ROOT / "docs/how-to/use-a-client.md").read_text(encoding="utf-8")
NODE_TYPES = """\
declare const process: { env: Record<string, string> };
declare module "node:fs/promises" {
  function readFile(path: string): Promise<BlobPart>;
}
"""
SEPARATOR = "next example"
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


@pytest.mark.parametrize("client_class", [Client, AsyncClient])
def test_python_client_makes_every_call(
    server: dict[str, Any], tmp_path: Path, client_class: type[Client] | type[AsyncClient]
) -> None:
    name, question = client_class.__name__, "Who oils the crane in hall five?"
    path = tmp_path / f"{name}.md"
    path.write_text("# Crane\n\nThe crane in hall five is oiled each Sunday by Ada Holm.\n")
    client = AnyClient(client_class(server["url"], server["token"]))
    with client:
        receipt = client.ingest(path, external_id=name, tags=["crane", name], metadata={"n": 5})
        assert client.wait(receipt).state == "searchable"
        filters = {"external_ids": [name]}
        found = client.search(question, filters=filters, return_text=True)
        assert "Ada Holm" in found.results[0].text
        answer = client.query(question, filters=filters)
        assert "Ada Holm" in answer.answer and answer.citations[0].external_id == name
        *steps, last = client.stream(question, filters=filters)
        assert isinstance(last, QueryResponse) and last.answer == answer.answer
        assert any(isinstance(one, StepProgress) and one.name == "fuse" for one in steps)
        assert client.feedback(run_id=answer.run_id, useful=True).status == "accepted"
        (document,) = client.documents(tag=name)
        assert document.document_id == receipt.document_id and document.metadata == {"n": 5}
        assert answer.run_id in [run.run_id for run in client.runs(text="hall five")]
        types = [entry.type for entry in client.events(document=document.document_id)]
        assert "document.indexed.v1" in types
        assert client.erase(document.document_id).documents == 1
        assert client.documents(tag=name) == []
        with pytest.raises(ApiError, match=r"none.*\[UNKNOWN_PROFILE\]"):
            client.query(question, profile="none")
    with (
        AnyClient(client_class(server["url"], "wrong")) as stranger,
        pytest.raises(ApiError, match="UNAUTHENTICATED"),
    ):
        stranger.query(question)


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


@pytest.fixture(scope="module")
def typescript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the package and the programs that use it; return their folder."""
    folder = tmp_path_factory.mktemp("typescript")
    package = folder / "node_modules/anabranch-client"
    shutil.copytree(CLIENT, package)
    programs = NODE_MODULES / ".bin"
    run(
        *(programs / "openapi-typescript", OPENAPI_FILE, "-o", "src/schema.gen.ts"),
        # Fields with a default may be left out of requests.
        "--default-non-nullable=false",
        folder=package,
    )
    run(programs / "tsc", folder=package)
    shutil.copy(PROGRAMS / "use_client.ts", folder)
    (folder / "example.ts").write_text(list_examples("typescript")[0])
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "node.d.ts").write_text(NODE_TYPES)
    options = ("--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom")
    files = ("use_client.ts", "example.ts", "node.d.ts")
    run(programs / "tsc", *options, "--skipLibCheck", *files, folder=folder)
    return folder


@pytest.mark.skipif(not NODE_MODULES.exists(), reason="needs `make clients` (npm)")
@pytest.mark.parametrize(
    ("program", "expected"),
    [("use_client.js", "ok\n"), ("example.js", "45.* days(.|\n)*UNKNOWN_PROFILE")],
)
def test_typescript_client_is_typed_and_works(
    server: dict[str, Any], typescript: Path, program: str, expected: str
) -> None:
    printed = run(
        *("node", typescript / program, server["url"], server["token"]),
        folder=ROOT,
        SERVER=server["url"],
        TOKEN=server["token"],
    )
    assert re.search(expected, printed), printed


def list_examples(language: str) -> list[str]:
    """Return the examples of the page, without those that only set variables."""
    examples = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return [example for example in examples if "Merrin" in example]


@pytest.mark.parametrize(("command", "count"), [("sh", 1), ("python", 5)])
def test_examples_of_the_page_run(server: dict[str, Any], command: str, count: int) -> None:
    examples = list_examples(command)
    assert len(examples) == count
    # In one process, which imports everything once.
    program = f"\nprint({SEPARATOR!r})\n".join(examples)
    printed = run(
        *(sys.executable if command == "python" else command, "-c", program),
        folder=ROOT,
        SERVER=server["url"],
        TOKEN=server["token"],
        HAYSTACK_TELEMETRY_ENABLED="False",
    )
    for output in printed.replace("*", "").split(SEPARATOR):
        assert "45 days" in output, printed
