"""Hostile control sequences in texts, through every command that prints."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cyclopts import App

from anabranch.cli import build_app, main
from tests.support.eventually import eventually_blocking
from tests.support.server_process import open_http_client, run_up

CONTROL_SEQUENCES = (
    "\x1b]52;c;ZXZpbA==\x07\x1b]8;;evil:example\x1b\\here\x1b[2J\x9b31m\u202eliam\u2066\x7f"
)
CONTROL_CHARACTER = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
QUESTION = "How many steps does the keeper of Skerryvore count?"
HOSTILE_TEXT = (
    f"# Tower {CONTROL_SEQUENCES}\n\n"
    f"The keeper of Skerryvore {CONTROL_SEQUENCES} counts ninety-seven steps. Anna "
    f"Lindqvist{CONTROL_SEQUENCES} of Quill{CONTROL_SEQUENCES} Limited paid EUR 4,200."
)
LOGGING_COMMANDS = {"up", "api", "worker", "kafka start"}
"""Run until they are stopped; what they say of documents are logs."""
BROKEN_UPLOAD_FIELDS = {
    "filename": f"{CONTROL_SEQUENCES}.pdf",
    "media_type": "application/pdf",
    "external_id": f"broken {CONTROL_SEQUENCES}",
}


def list_commands(app: App, path: tuple[str, ...] = ()) -> Iterator[str]:
    for name in (name for name in app if not name.startswith("-")):
        inner = app[name]
        if any(not nested.startswith("-") for nested in inner):
            yield from list_commands(inner, (*path, name))
        else:
            yield " ".join((*path, name))


def wait_until(http: httpx2.Client, path: str, holds: Any) -> Any:
    return eventually_blocking(lambda: http.get(path).json(), holds, what=path)


def create_hostile_data(http: httpx2.Client, folder: Path) -> dict[str, list[list[str]]]:
    """Create hostile texts of every kind; return the arguments with which commands print them."""
    names = {
        "title": f"Title {CONTROL_SEQUENCES}\n[2] forged",
        "collection": f"c{CONTROL_SEQUENCES}",
        "tags": [f"t{CONTROL_SEQUENCES}"],
        "metadata": {f"k{CONTROL_SEQUENCES}": CONTROL_SEQUENCES},
    }
    sent = [
        http.post(
            "/v1/ingest",
            json={
                "text": HOSTILE_TEXT,
                "external_id": f"{part}{CONTROL_SEQUENCES}",
                "filename": f"{part}{CONTROL_SEQUENCES}.md",
                **names,
            },
        )
        for part in ("a", "b")
    ]
    document, other = (response.raise_for_status().json()["document_id"] for response in sent)
    http.post(
        "/v1/ingest",
        files={"file": ("broken.pdf", b"%PDF-1.7 nothing", "application/pdf")},
        data=BROKEN_UPLOAD_FIELDS,
    ).raise_for_status()
    (folder / f"watched{CONTROL_SEQUENCES}").mkdir()
    (folder / f"watched{CONTROL_SEQUENCES}" / f"note{CONTROL_SEQUENCES}.md").write_text(
        HOSTILE_TEXT
    )
    for one in (document, other):
        wait_until(
            http,
            f"/v1/documents/{one}",
            lambda found: (
                found.get("state") == "searchable"
                and all(line["state"] == "done" for line in found["stages"])
            ),
        )
    letters = wait_until(http, "/v1/dead-letters", lambda found: found["items"])["items"]
    run = (
        http.post("/v1/query", json={"query": f"{QUESTION} {CONTROL_SEQUENCES}"})
        .raise_for_status()
        .json()
    )
    assert run["answer"] and run["citations"], run
    wait_until(http, f"/v1/runs/{run['run_id']}", lambda found: found.get("response"))
    saved = http.post("/v1/questions", json={"query": f"{QUESTION} {CONTROL_SEQUENCES}"})
    question = saved.raise_for_status().json()["question_id"]
    stated = http.post(
        "/v1/facts",
        json={"subject": CONTROL_SEQUENCES, "predicate": "is", "object": CONTROL_SEQUENCES},
    )
    fact = stated.raise_for_status().json()["fact_id"]
    entities = wait_until(http, "/v1/entities", lambda found: len(found["items"]) > 1)["items"]
    entity, other_entity = (one["id"] for one in entities[:2])
    watched, note = (
        str(folder / f"watched{CONTROL_SEQUENCES}"),
        str(folder / f"watched{CONTROL_SEQUENCES}" / f"note{CONTROL_SEQUENCES}.md"),
    )
    drafts = str(folder / f"drafts{CONTROL_SEQUENCES}.jsonl")
    return {
        "ingest": [
            [note],
            [note, "--wait"],
            [watched, "--wait"],
            ["http://192.0.2.1/" + CONTROL_SEQUENCES],
        ],
        "query": [[QUESTION], [QUESTION, "--stream"], [QUESTION, "--explain"]],
        "search": [[QUESTION], ["keeper", "--explain"]],
        "documents lineage": [[document]],
        "documents retry": [[letters[0]["document_id"] or document]],
        "documents list": [[], ["--failed"], ["--collection", f"c{CONTROL_SEQUENCES}"]],
        "documents show": [[document], [letters[0]["document_id"] or document]],
        "documents chunks": [[document]],
        "documents open": [[document, "--no-browser"], [CONTROL_SEQUENCES]],
        "documents markdown": [[document]],
        "documents amend": [[document, "--title", f"Other {CONTROL_SEQUENCES}"]],
        "entities list": [[], ["--search", CONTROL_SEQUENCES]],
        "entities show": [[entity]],
        "entities amend": [[entity, "--add-alias", "the other"], [entity]],
        "entities merge": [[other_entity, "--into", entity], [entity, "--into", entity]],
        "entities split": [[entity, "--part", other_entity], [entity, "--part", CONTROL_SEQUENCES]],
        "source add debezium": [["deb", CONTROL_SEQUENCES]],
        "source add postgres": [
            ["pg", CONTROL_SEQUENCES, "--dsn", f"postgresql://{CONTROL_SEQUENCES}"]
        ],
        "source add folder": [["inbox", watched]],
        "source add urls": [["web", f"http://192.0.2.1/{CONTROL_SEQUENCES}"]],
        "source list": [[]],
        "source status": [[], ["inbox"]],
        "source reset": [["inbox"], [CONTROL_SEQUENCES]],
        "source remove": [["inbox", "--yes"], [CONTROL_SEQUENCES, "--yes"]],
        "watch": [
            ["--from", "begin", "--until", "now"],
            ["--from", "begin", "--until", "now", "--format", "%d %k %v %s %i"],
            [watched, "--once"],
        ],
        "dlq list": [[]],
        "dlq show": [[letters[0]["event_id"]]]
        if "event_id" in letters[0]
        else [[str(next(iter(letters[0].values())))]],
        "dlq redrive": [["--all", "--yes"], ["--dry-run", "--all"]],
        "dlq discard": [["--all", "--dry-run"], ["--all", "--yes"]],
        "replay start": [
            ["--stage", "chunk", "--dry-run"],
            ["--stage", "chunk", "--document", document],
        ],
        "replay list": [[]],
        "replay show": [[]],
        "replay status": [[]],
        "replay watch": [[]],
        "replay pause": [[]],
        "replay resume": [[]],
        "replay cancel": [[]],
        "runs start": [[f"{QUESTION} {CONTROL_SEQUENCES}"], [QUESTION, "--follow"]],
        "runs status": [[run["run_id"]]],
        "runs stream": [[run["run_id"]]],
        "runs cancel": [[run["run_id"]]],
        "runs list": [[]],
        "runs export": [[], ["--format", "jsonl"]],
        "runs summarize": [[run["run_id"]]],
        "runs show": [[run["run_id"]]],
        "runs rerun": [[run["run_id"]]],
        "runs diff": [[run["run_id"]]],
        "runs counterfactual": [[run["run_id"]]],
        "runs bisect": [[run["run_id"]]],
        "lineage": [[run["run_id"]], [run["run_id"], "--prov"]],
        "feedback": [[run["run_id"], "--up"], [run["run_id"], "--note", CONTROL_SEQUENCES]],
        "questions add": [[f"{QUESTION} {CONTROL_SEQUENCES}"], ["x", "--hook", CONTROL_SEQUENCES]],
        "questions list": [[]],
        "questions changes": [[question]],
        "questions redeliver": [[question]],
        "questions delete": [[question]],
        "facts add": [["Plant 3", "is run by", CONTROL_SEQUENCES]],
        "facts list": [[]],
        "facts approve": [[fact]],
        "facts reject": [[fact, "--reason", CONTROL_SEQUENCES]],
        "facts delete": [[fact, "--yes"]],
        "experiments start": [["default", CONTROL_SEQUENCES], ["default", "rrf"]],
        "experiments list": [[]],
        "experiments show": [[run["run_id"]]],
        "experiments stop": [[run["run_id"]]],
        "generations list": [[]],
        "generations show": [["g1"]],
        "generations diff": [["g1", "g1"]],
        "generations compare": [["g1", "g1", "--queries", "1"]],
        "generations promote": [["g1"]],
        "generations rollback": [[]],
        "generations drop": [["g1", "--yes"]],
        "exam": [["--questions", "2"]],
        "calibrate": [["--questions", "2"]],
        "rebuild": [["--dry-run"]],
        "reindex": [["--dry-run", "--set", f"chat.model={CONTROL_SEQUENCES}"]],
        "topics list": [[]],
        "topics describe": [["raw"]],
        "topics create": [[]],
        "topics verify": [[]],
        "topics lag": [[]],
        "db migrate": [["--dry-run"]],
        "db status": [[]],
        "db checksum": [[]],
        "db check": [[]],
        "kafka stop": [[]],
        "kafka status": [[]],
        "eval retrieval": [[f"/nowhere/{CONTROL_SEQUENCES}"]],
        "eval answers": [[f"/nowhere/{CONTROL_SEQUENCES}"]],
        "eval reports": [[f"/nowhere/{CONTROL_SEQUENCES}"]],
        "eval documents": [[f"/nowhere/{CONTROL_SEQUENCES}"]],
        "eval compare": [["g1", "g1", "--queries", "1"]],
        "eval export": [["/dev/null/export"]],
        "eval candidates list": [[]],
        "eval candidates accept": [[run["run_id"]]],
        "eval candidates reject": [[run["run_id"]]],
        "eval drafts": [[drafts]],
        "eval import": [[drafts], [note]],
        "completion": [["bash"]],
        "doctor": [[], ["--bundle", str(folder / "bundle.zip")]],
        "config show": [[], ["--set", f"chat.model={CONTROL_SEQUENCES}"]],
        "config schema": [[]],
        "config profiles": [[]],
        "config reload": [[]],
        "contract openapi": [[]],
        "contract asyncapi": [[]],
        "contract schemas": [["--out", str(folder / "schemas")]],
        "open": [[]],
        "mcp config": [["claude"], [CONTROL_SEQUENCES]],
        "version": [[]],
        "documents delete": [[other]],
        "collections list": [[]],
        "collections set-profile": [[f"c{CONTROL_SEQUENCES}", CONTROL_SEQUENCES]],
        "collections configure": [[f"c{CONTROL_SEQUENCES}", "--chunking", CONTROL_SEQUENCES]],
        "collections unset-profile": [[f"c{CONTROL_SEQUENCES}"]],
        "collections delete": [[f"c{CONTROL_SEQUENCES}", "--yes"]],
        "erase document": [[document, "--yes"]],
        "erase collection": [[f"c{CONTROL_SEQUENCES}", "--yes"]],
        "erase tenant": [[CONTROL_SEQUENCES, "--yes"]],
        "erase receipts": [[]],
        "keys create": [["--name", CONTROL_SEQUENCES], ["--user", CONTROL_SEQUENCES]],
        "keys list": [[]],
        "keys rotate": [["0" * 16], [CONTROL_SEQUENCES]],
        "keys revoke": [["0" * 16, "--yes"], [CONTROL_SEQUENCES, "--yes"]],
        "keys rewrap": [[]],
        "audit": [[]],
        "whoami": [[]],
        "login": [[]],
        "logout": [[]],
        "topics acls": [[], ["--producer", f"User:{CONTROL_SEQUENCES}"]],
        "db scrub": [[]],
        "down": [[]],
    }


def parse_json_objects(out: str) -> None:
    """Parse one JSON object or several."""
    decoder, place = json.JSONDecoder(), 0
    while place < len(out.rstrip()):
        _, place = decoder.raw_decode(out, place)
        place += len(out[place:]) - len(out[place:].lstrip())


def run_and_capture(tokens: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with suppress(SystemExit):  # a usage error
        main(tokens)
    captured = capsys.readouterr()
    return captured.out + "\0" + captured.err


def test_every_command_escapes_control_characters(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    escaped: set[str] = set()
    with run_up(folder) as (served, server), open_http_client(server) as http:
        walk = create_hostile_data(http, tmp_path)
        assert {*walk, *LOGGING_COMMANDS} == set(list_commands(build_app())), (
            "each command prints, or logs"
        )
        for command, calls in walk.items():
            # Contracts contain nothing of documents, and take most of the time.
            formats = [] if command.startswith("contract") else [[*calls[0], "--json"]]
            for call in [*calls, *formats]:
                out, _, err = run_and_capture(
                    [*command.split(), *call, "--data", str(folder)], capsys
                ).partition("\0")
                assert not (found := CONTROL_CHARACTER.findall(out + err)), (
                    command,
                    call,
                    found,
                    out + err,
                )
                escaped |= {command} if re.search(r"\\(x1b|u001b|u202e)", out) else set()
                if call[-1:] == ["--json"] and out.startswith("{"):
                    parse_json_objects(out)
        for command in list_commands(build_app()):
            complaint = run_and_capture(
                [*command.split(), f"--no-such{CONTROL_SEQUENCES}"], capsys
            ).replace("\0", "")
            assert not CONTROL_CHARACTER.findall(complaint), (command, complaint)
    assert not CONTROL_CHARACTER.findall(
        served.stderr_file.read_text() + served.stdout_file.read_text()
    )
    shown = {
        "query",
        "search",
        "documents list",
        "documents show",
        "documents markdown",
        "runs show",
        "runs list",
        "lineage",
        "documents lineage",
        "dlq list",
    }
    assert shown <= escaped, shown - escaped
