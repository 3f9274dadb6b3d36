"""The commands of the how-to pages run when pasted, against one server."""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.cli import main
from tests.support.eventually import eventually_blocking
from tests.support.server_process import open_http_client, run_up

PAGES = Path(__file__).parents[2] / "docs/how-to"
NOT_RUN = re.compile(
    r"anabranch (up|down|api|worker|kafka|login|exam|calibrate|rebuild|reindex|open|whoami|db"
    r"|topics acls|erase tenant|keys rewrap|doctor|config reload|runs summarize|eval|source"
    r"|completion|watch \./|generations (rollback|drop)|replay pause)\b"
    r"|> |--from -15m|watch --document|--server|--hook|\bg2\b|CHUNK_ID|--offsets|PARSER_CRASHED"
    r"|--profile (on-server|analyst)|contract\.pdf|Robot Arm License\.txt|robots"
)
"""Commands that stop or replace the server, wait for an interruption, build an index, or need
another server, a network, or a file that only the reader has.
"""
LISTS = [
    *("audit", "keys list", "source list", "topics list", "topics lag", "experiments list"),
    *("config show --origin", "documents list --sort chunks:desc", "db status", "erase receipts"),
    "watch --document lease.md --from begin --until now --format %t",
]
"""Further commands, whose tables fit 80 columns."""
QUESTION = "How many days of notice must Merrin Ferries give?"
FILES = {
    "notice.md": "# Ferry contract\n\nMerrin Ferries must give 45 days of notice.\n",
    "contracts/lease.md": "# Lease\n\nHarbour Estates rents the quay to Tern Foods Ltd. In May, "
    "Harbour Estates pays EUR 90. The Harbour was dredged by Harbour Estates.\n",
    "contracts-2019/old.md": "# Crane\n\nThe crane lifts nine tons.\n",
    "toll-notice.md": "# Toll\n\nA van pays 5 crowns.\n",
    "broken.pdf": "%PDF-1.7 nothing",
}
"""Files that the pages speak of, in folders of the name of their collection."""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def list_commands(page: Path) -> list[str]:
    """Return the commands of the blocks that are run, without comments."""
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    commands = [line.removeprefix("$ ") for line in lines]
    return [line for line in commands if line.startswith("anabranch ") and not NOT_RUN.search(line)]


def ingest(file: str, text: str) -> None:
    path = Path(file)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    collection = path.parent.name
    main(["ingest", file, "--wait", *(["--collection", collection] if collection else [])])


def test_commands_of_the_pages_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 9))
    with run_up(tmp_path / "anabranch-data") as (_, server), open_http_client(server) as http:

        def find(path: str, field: str) -> Callable[[], str]:
            return lambda: eventually_blocking(
                lambda: [item[field] for item in http.get(path).json()["items"]], bool, what=path
            )[0]

        runs = []
        for file, text in FILES.items():
            ingest(file, text)
        for days in ("45", "60"):
            ingest("notice.md", FILES["notice.md"].replace("45", days))
            runs.append(http.post("/v1/query", json={"query": QUESTION}).json()["run_id"])
            find("/v1/runs?limit=1&id_prefix=" + runs[-1], "run_id")()
        document, fact = (
            find("/v1/documents?text=Ferry", "document_id"),
            find("/v1/facts", "fact_id"),
        )
        events = http.get(f"/v1/documents/{document()}/events").json()["items"]
        accepted = max(event["offset"] for event in events if event["topic"] == "accepted")
        names: dict[str, Callable[[], str]] = {
            "POSITION": lambda: f"accepted[0]@{accepted}",
            "RUN": lambda: runs[0],
            "RUN#2": lambda: f"{runs[0]}#1",
            "OTHER": lambda: runs[1],
            "ask-again ID": find("/v1/questions", "question_id"),
            "compare-profiles-on-live-questions ID": find("/v1/experiments", "experiment_id"),
            "trace-an-answer ID": document,
            "DOCUMENT_ID": document,
            "DOCUMENT": find("/v1/documents?text=broken", "document_id"),
            "EVENT": find("/v1/dead-letters", "event_id"),
            "0b6f4c2e": lambda: fact()[:8],
            "0b6f4c2e-6f0c-4c51-9a0e-4f9d1b7a7c11": fact,
            "5427": lambda: document()[:4],
            "7d4f1c9e-0b1c-8f6e-9a51-2f0c6f7f2f11": document,
        }
        # An erasure takes runs with it.
        pages = sorted(PAGES.glob("*.md"), key=lambda page: (page.stem.startswith("erase"), page))
        commands = [(page.stem, command) for page in pages for command in list_commands(page)]
        assert len(commands) >= 60
        commands += [("", f"anabranch {command}") for command in LISTS]
        for page, command in commands:
            words = [
                get() if (get := names.get(word) or names.get(f"{page} {word}")) else word
                for word in shlex.split(command, comments=True)
            ]
            monkeypatch.setattr(sys, "stdout", terminal := Terminal())
            code = main(words[1:])
            output = terminal.getvalue()
            # A question is refused where only the page's own documents have the answer, and a
            # broken file fails again.
            allowed = {"query": (0, 4), "documents retry": (5,)}
            assert code in allowed.get(words[1], allowed.get(" ".join(words[1:3]), (0,))), (
                f"{page}: {command}\n{output}\n{capsys.readouterr().err}"
            )
            if not page or " list" in command or "runs diff" in command:
                tables = [line for line in output.splitlines() if not line.startswith("because")]
                assert max(map(len, tables)) <= 80, (command, output)
