"""Commands: arguments, completion, collections, and the server that they use."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from anabranch.cli import COMMANDS, build_app, main
from anabranch.cli.errors import to_exit_code
from anabranch.cli.evaluate import MEASURES
from anabranch.cli.ingest import parse_duration_s
from anabranch.cli.ingest_batch import expand_paths
from anabranch.cli.options import CommonOptions
from anabranch.cli.output import choose_display_name, format_cell, print_answer
from anabranch.cli.query import _format_location
from anabranch.process.terminal import EscapedStream
from schemas.errors import (
    AnabranchError,
    ConfigurationError,
    DatabaseUnavailable,
    FatalError,
    GenerationMismatch,
    NotFound,
    PermanentError,
)
from tests.fakes.failing_server import ServeAnswers, run_asgi_app, serve_answers


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "-"),
        ([], "-"),
        ({}, "-"),
        (False, "no"),
        (0, "0"),
        (["a", "b"], "a, b"),
        ({"key": "a/b", "size": 3, "error": None, "tags": []}, "key a/b, size 3"),
        (
            {"low": 0.1, "done": True, "stages": ["chunk", "embed"]},
            "low 0.1, done yes, stages chunk, embed",
        ),
        ("two\nlines", "two lines"),
    ],
)
def test_table_cell_is_plain_text(value: object, expected: str) -> None:
    assert format_cell(value) == expected


def make_result(**more: Any) -> dict[str, Any]:
    return {
        "document_id": "7d4f",
        "external_id": None,
        "source_uri": None,
        "title": "Lease",
        "section": None,
        "pages": [],
    } | more


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (make_result(section="Lease"), "Lease"),
        (make_result(section="Lease > 2. Rent", pages=[1, 2]), "Lease · 2. Rent · p. 1, 2"),
        (make_result(section="Leases > 2. Rent"), "Lease · Leases > 2. Rent"),
        (make_result(title=None, source_uri="file:///tmp/lease.pdf"), "lease.pdf"),
        (make_result(title=None), "7d4f"),
    ],
)
def test_citation_location_names_document_once(item: dict[str, Any], expected: str) -> None:
    assert _format_location(item) == expected


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ({"items": [{"a": 1}, {"a": 2}], "next": "7"}, [{"a": 1}, {"a": 2}]),
        ({"topics": []}, []),
        ({"profiles": ["plain"]}, [{"profiles": ["plain"]}]),
        ({"documents": [{"a": 1}], "counts": {}}, [{"documents": [{"a": 1}], "counts": {}}]),
        ({"replay_id": "r", "next": None}, [{"replay_id": "r", "next": None}]),
    ],
)
def test_ndjson_prints_list_items_or_whole_body(
    body: dict[str, Any], lines: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    CommonOptions(output="ndjson").print_result(body)
    captured = capsys.readouterr()
    assert [json.loads(line) for line in captured.out.splitlines()] == [
        {"schema_version": 1, **line} for line in lines
    ]
    assert ("--after 7" in captured.err) == bool(body.get("next"))


def test_json_output_is_one_object_by_either_flag(capsys: pytest.CaptureFixture[str]) -> None:
    for common in (CommonOptions(as_json=True), CommonOptions(output="json")):
        assert common.is_json
        common.print_result({"items": [1], "next": None})
        assert json.loads(capsys.readouterr().out) == {
            "schema_version": 1,
            "items": [1],
            "next": None,
        }
    assert not CommonOptions().is_json and CommonOptions(output="ndjson").is_json


def test_progress_is_ndjson_object_or_stderr_text(capsys: pytest.CaptureFixture[str]) -> None:
    for common in (
        CommonOptions(output="ndjson"),
        CommonOptions(as_json=True),
        CommonOptions(quiet=True),
    ):
        common.report_progress("7 of 20", {"read": 7})
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (
        '{"schema_version": 1, "progress": {"read": 7}}\n',
        "7 of 20\n",
    )


def test_document_label_falls_back_to_other_names() -> None:
    names = {"title": None, "filename": "", "source_uri": "http://here/x", "external_id": "x"}
    assert (
        choose_display_name(names),
        choose_display_name(names | {"title": "Of herons"}),
        choose_display_name({"external_id": "x"}),
        choose_display_name({}),
    ) == ("http://here/x", "Of herons", "x", None)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


DOCUMENT_ID = "7d4f1c9e-0b1c-8f6e-9a51-2f0c6f7f2f11"
ITEM: dict[str, Any] = {
    "document_id": DOCUMENT_ID,
    "receipt_id": DOCUMENT_ID,
    "at": "2026-11-28T15:40:55.123456Z",
    "n": 7,
    "title": "A lease of the mill and of the weir, renewed by both parties " * 2,
}


def print_list(monkeypatch: pytest.MonkeyPatch, columns: int, **options: Any) -> list[str]:
    """Print the item as a list command does on a terminal of that width."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    names = options.pop("names", ("document_id", "at", "n", "title"))
    CommonOptions(**options).show_page({"items": [ITEM], "next": None}, *names, optional=("n",))
    return terminal.getvalue().splitlines()


def test_list_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    heading, line = print_list(monkeypatch, 60)
    assert heading.split() == ["document_id", "at", "title"]
    assert line.startswith("7d4f1c9e     2026-11-28 15:40  A lease") and line.endswith("…")
    assert len(line) == 60


def test_id_that_has_no_short_form_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    _, line = print_list(monkeypatch, 60, names=("receipt_id", "title"))
    assert line.startswith(DOCUMENT_ID) and len(line) == 60


QUESTION = {
    "question_id": DOCUMENT_ID,
    "request": {"query": "How many days of notice must Merrin Ferries give before it leaves?"},
    **dict.fromkeys(("answered_at", "changed_at"), ITEM["at"]),
    "is_due": True,
    "problem": None,
}
USEFUL = {"value": 0.1234, "low": 0.1, "high": 0.9, "n": 3}
ARM = {"profile": "a-profile-with-a-long-name", "runs": 1, "refused": 0, "useful": USEFUL}
EXPERIMENT = {"experiment_id": DOCUMENT_ID, "control": "default", "candidate": "rrf", "share": 0.5}
EXPERIMENT |= {"started_at": ITEM["at"], "verdict": "collecting", "needed": 393, "difference": None}
EXPERIMENT |= {"arms": [ARM, ARM]}
SIDE = {"answer": "4", "code": None, "run_id": DOCUMENT_ID, "generation": "g1", "profile": "rrf"}
PASSAGE = {"rank_then": 1, "rank_now": None, "section": "The wharf, its gates and its hours" * 2}
PASSAGE |= {"title": ITEM["title"]}
DIFFERENCE = {"question": "How fast?", "then": SIDE, "now": SIDE, "same": False, "reasons": []}
DIFFERENCE |= {"removed": [PASSAGE], "added": [], "moved": []}


SHARES = {key: {"value": 0.5, "low": 0.25, "high": 0.75, "n": 30} for key in MEASURES}
EXAM = {"overall": SHARES, "kinds": {"amount": SHARES}, "collections": {"": SHARES}}
EXAM |= {"questions": 60, "generation": "g1", "failed": 0, "weakest_documents": []}


@pytest.mark.parametrize(
    ("width", "command", "body", "heading"),
    [
        (80, ["questions", "list"], QUESTION, "question_id question changed_at problem"),
        (40, ["questions", "list"], QUESTION, "question_id question"),
        (
            80,
            ["experiments", "list"],
            EXPERIMENT,
            "experiment_id control candidate share started_at verdict",
        ),
        (
            80,
            ["experiments", "show", DOCUMENT_ID],
            EXPERIMENT,
            "profile runs refused useful low high judged",
        ),
        (80, ["exam"], EXAM, "questions measure share 95 % of"),
        (80, ["runs", "diff", DOCUMENT_ID], DIFFERENCE, "passage then now document section"),
    ],
)
def test_tables_fit_the_terminal(
    serve_answers: ServeAnswers,
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    command: list[str],
    body: dict[str, Any],
    heading: str,
) -> None:
    page = {"items": [body], "next": None} if command[-1] == "list" else body
    paths = ("/v1/questions", "/v1/exams", "/v1/experiments", f"/v1/experiments/{DOCUMENT_ID}")
    serve_answers(dict.fromkeys((*paths, f"/v1/runs/{DOCUMENT_ID}/diff"), page), 1)
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(command) == 0
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert heading in [" ".join(line.split()) for line in lines]


@pytest.mark.parametrize("steps", [[], [{"step": "plan", "ms": 1.0}]])
def test_status_without_steps_has_no_table(
    serve_answers: ServeAnswers, capsys: pytest.CaptureFixture[str], steps: list[dict[str, Any]]
) -> None:
    run = {"run_id": DOCUMENT_ID, "state": "completed", "error": None, "steps": steps}
    run |= {"started_at": ITEM["at"], "ended_at": ITEM["at"]}
    serve_answers({f"/v1/runs/{DOCUMENT_ID}/status": run}, 1)
    assert main(["runs", "status", DOCUMENT_ID]) == 0
    assert ("step" in capsys.readouterr().out) == bool(steps)


def test_wide_list_and_piped_list_are_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    CommonOptions().show_page({"items": [ITEM], "next": None}, *ITEM)
    piped = capsys.readouterr().out.splitlines()
    assert print_list(monkeypatch, 60, wide=True, names=tuple(ITEM)) == piped
    assert ITEM["title"].strip() in piped[1] and ITEM["at"] in piped[1]


def test_narrow_list_is_not_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    _, line = print_list(monkeypatch, 60, names=("document_id", "n"))
    assert line.split() == [DOCUMENT_ID, "7"]


@pytest.mark.parametrize(
    ("is_terminal", "no_color", "expected"),
    [
        (True, False, "pay \x1b[1m45\x1b[22m of 2 * 3, \\x1b[2J\n"),
        (True, True, "pay 45 of 2 * 3, \\x1b[2J\n"),
        (False, False, "pay 45 of 2 * 3, \\x1b[2J\n"),
    ],
)
def test_emphasis_is_bold_on_terminal_only(
    is_terminal: bool, no_color: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr("sys.stdout", EscapedStream(stream))
    monkeypatch.setenv("TERM", "xterm")
    print_answer("pay **45** of 2 * 3, \x1b[2J", no_color=no_color)
    assert stream.getvalue() == expected


def test_usage_error_names_the_help_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["config", "show", "--output", "nope"])
    stderr = capsys.readouterr().err
    assert "nope" in stderr and "`anabranch config show --help`" in stderr


def test_surplus_argument_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["audit", "list"])
    stderr = capsys.readouterr().err
    assert "Unexpected argument: list." in stderr and "Tokens" not in stderr


def test_help_leaves_empty_defaults_out(capsys: pytest.CaptureFixture[str]) -> None:
    build_app()(["ingest", "--help"])
    printed = capsys.readouterr().out
    assert "[default: 16]" in printed
    assert "()" not in printed and "None" not in printed


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    build_app()([command, "--help"])
    assert capsys.readouterr().out.startswith(f"Usage: anabranch {command}")
    assert COMMANDS[command][1].endswith((".", "?"))


@pytest.mark.parametrize(
    ("tokens", "code"),
    [
        (["--help"], 0),
        (["documents", "--help"], 0),
        (["version"], 0),
        (["x"], 2),
        (["config", "schema"], 0),
    ],
)
def test_closed_pipe_ends_a_command_quietly(tokens: list[str], code: int) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    program = [sys.executable, "-m", "anabranch", *tokens]
    done = subprocess.run(program, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (
        done.returncode == code
        and "Traceback" not in done.stderr
        and bool(done.stderr) == (code > 0)
    )


def test_missing_path_exits_with_code_3(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["ingest", str(tmp_path / "nothing.pdf"), "--data", str(tmp_path)]) == 3
    assert "nothing.pdf" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("x"), 2),
        (GenerationMismatch("x"), 2),
        (FatalError("x", code="MISCONFIGURED"), 2),
        (NotFound("x"), 3),
        (DatabaseUnavailable("x"), 7),
        (PermanentError("x"), 1),
        (FatalError("x"), 1),
    ],
)
def test_exit_code_reflects_error_class(error: AnabranchError, code: int) -> None:
    assert to_exit_code(error) == code


@pytest.mark.parametrize(("text", "expected"), [("90s", 90), ("10m", 600), ("2h", 7200), ("7", 7)])
def test_durations_are_parsed_to_seconds(text: str, expected: float) -> None:
    assert parse_duration_s(text) == expected
    with pytest.raises(ConfigurationError):
        parse_duration_s("soon")


def test_folder_is_expanded_by_glob_and_recursion(tmp_path: Path) -> None:
    for folder in ("deep", ".git", "deep/.cache/old"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("a.md", "b.pdf", ".hidden.md", "deep/c.md", ".git/config", "deep/.cache/old/d.md"):
        (tmp_path / name).write_text("x")
    found = [
        Path(source.path).name
        for source in expand_paths([str(tmp_path)], glob="*.md", recursive=False)[0]
    ]
    assert found == ["a.md"]
    deep = [
        Path(source.path).name
        for source in expand_paths([str(tmp_path)], glob="*", recursive=True)[0]
    ]
    assert deep == ["a.md", "b.pdf", "c.md"]
    asked_for = [
        Path(source.path).name
        for source in expand_paths([str(tmp_path / ".git")], glob="*", recursive=True)[0]
    ]
    assert asked_for == ["config"], "a hidden folder that is named is meant"
    assert [
        source.kind
        for source in expand_paths(
            ["-", "/dev/stdin", "HTTPS://example.org/x"], glob="*", recursive=False
        )[0]
    ] == ["stdin", "stdin", "url"]


__all__ = ["serve_answers"]

DELETION_ID = "7d4f1c9e-0b1c-8f6e-9a51-2f0c6f7f2f11"
NAME = "laws/2024 ?"
PATH = f"/v1/collections/{NAME}"
COLLECTION: dict[str, Any] = {
    "name": NAME,
    "documents": 2,
    "chunks": 3,
    "languages": ["en"],
    "default_profile": "rrf",
    "chunking": None,
    "extract": None,
    "deletion": None,
}


def make_deletion(state: str) -> dict[str, Any]:
    return {"deletion_id": DELETION_ID, "state": state, "completed_at": "2026-01-02T00:00:00Z"}


@pytest.mark.parametrize(
    ("command", "profile"), [(["set-profile", NAME, "rrf"], "rrf"), (["unset-profile", NAME], None)]
)
def test_name_with_slash_and_question_mark_reaches_server(
    serve_answers: ServeAnswers, command: list[str], profile: str | None
) -> None:
    requests = serve_answers({PATH: COLLECTION}, 1)
    assert main(["collections", *command]) == 0
    assert [(path, json.loads(body)) for path, body in requests] == [
        (PATH, {"default_profile": profile})
    ]


def test_list_names_the_default_profile(
    serve_answers: ServeAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_answers({"/v1/collections": {"items": [COLLECTION]}}, 1)
    assert main(["collections", "list"]) == 0
    assert "rrf" in capsys.readouterr().out.splitlines()[1]


def test_delete_waits_until_deletion_is_done(
    serve_answers: ServeAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    accepted = {"deletion_id": DELETION_ID, "status": "accepted"}
    states = [COLLECTION | {"deletion": make_deletion(state)} for state in ("running", "done")]
    requests = serve_answers({PATH: [accepted, *states]}, 3)
    assert main(["collections", "delete", NAME, "--yes", "--json"]) == 0
    assert len(requests) == 3
    printed = json.loads(capsys.readouterr().out)
    assert (printed["deletion_id"], printed["state"]) == (DELETION_ID, "done")


COMPLETE = """
source "$1"; shift
complete -p anabranch | grep -q -- '-o default' || echo "no files"
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 ))
"$(complete -p anabranch | sed 's/.*-F \\([^ ]*\\).*/\\1/')"
echo "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_options_and_values(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "anabranch"
    script.write_text(capsys.readouterr().out)
    for words, expected in (
        (["docu"], "documents"),
        (["documents", "del"], "delete"),
        (["documents", "list", "--coll"], "--collection"),
        (["documents", "list", "--state", "fa"], "failed"),
    ):
        completed = subprocess.run(
            ["bash", "-c", COMPLETE, "bash", str(script), "anabranch", *words],
            capture_output=True,
            text=True,
            check=True,
        )
        assert completed.stdout.split() == [expected], completed.stderr


def test_fish_script_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "fish"]) == 0
    script = capsys.readouterr().out
    assert script.startswith("# Fish") and "collections" in script and "\\x" not in script[:200]


ZSH = """
zmodload zsh/zpty
zpty shell env ZDOTDIR=$PWD zsh -d -i
zpty -r shell shown '*ready> '
# Each read waits for what is expected. The key before `print` goes to the start of the line.
zpty -w -n shell $'anabranch ingest sam\\t\\x01print -r - RESULT \\r'
zpty -r shell shown '*RESULT anabranch ingest sample-one.md*ready> '
zpty -w -n shell $'anabranch coll\\t\\x01print -r - RESULT \\r'
zpty -r shell shown '*RESULT anabranch collections*ready> '
zpty -d shell
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes_commands_and_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["completion", "zsh"]) == 0
    (tmp_path / "_anabranch").write_text(capsys.readouterr().out)
    (tmp_path / "sample-one.md").touch()
    for load in ("fpath=($PWD $fpath); compinit -u -D", "source ./_anabranch"):
        (tmp_path / ".zshrc").write_text(
            "PS1='ready> '; autoload -U compinit; compinit -u -D; "
            f"{load}; bindkey '^I' complete-word"
        )
        subprocess.run(["zsh", "-fc", ZSH], cwd=tmp_path, timeout=120, check=True)


@pytest.mark.parametrize(("value", "expected"), [("", "False"), ("x", "True"), ("0", "True")])
def test_any_value_of_no_color_counts_but_an_empty_one(value: str, expected: str) -> None:
    code = (
        "from anabranch.cli import main; from anabranch.cli.options import COMMON\n"
        "assert main(['version', '-q']) == 0; print(COMMON.no_color)"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"NO_COLOR": value},
        capture_output=True,
        text=True,
        check=True,
    )
    assert completed.stdout.split()[-1] == expected


def test_lone_dash_is_stdin_for_ingest_only(
    serve_answers: ServeAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["query", "what", "is", "5", "-", "2"])
    stderr = capsys.readouterr().err
    assert "Unknown option: -." in stderr and "Put `--` before words" in stderr
    serve_answers({"/v1/documents": {"items": [], "next": None}}, 3)
    assert main(["documents", "show", "--", "-"]) == 3
    assert "Unknown document '-'." in capsys.readouterr().err


def test_help_loads_no_engine_and_no_client() -> None:
    """Each takes a tenth of a second or more: no help takes .4 s."""
    heavy = {"numpy", "asyncpg", "aiokafka", "faust", "onnxruntime", "fastapi", "httpx2"}
    heavy |= {"anabranch.config.settings", "schemas.questions", "schemas.events.control"}
    code = (
        "import sys; from anabranch.cli import COMMANDS, main\n"
        "assert main(['--help']) == 0; print(*COMMANDS, 'end of names')\n"
        "assert [main([command, '--help']) for command in COMMANDS] == [0] * len(COMMANDS)\n"
        f"heavy = {heavy} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    *root_help, names = completed.stdout.partition(" end of names")[0].splitlines()
    assert set(names.split()) <= set(re.findall(r"[a-z-]+", "\n".join(root_help)))


LOCAL_COMMANDS = [
    *(("topics", name) for name in ("verify", "create", "acls")),
    *(("db", name) for name in ("migrate", "status", "checksum", "check")),
    ("config", "show"),
    ("down",),
    ("eval", "retrieval", "here"),
    ("eval", "documents", "here"),
]


@pytest.mark.parametrize("command", LOCAL_COMMANDS, ids=" ".join)
def test_local_command_refuses_server_option(
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANABRANCH_SERVER", "http://elsewhere:8420")
    assert main(list(command)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "ANABRANCH_SERVER is http://elsewhere:8420. [NOT_OVER_HTTP]" in captured.err
    assert "env -u ANABRANCH_SERVER" in captured.err
    monkeypatch.delenv("ANABRANCH_SERVER")
    assert main([*command, "--server", "http://elsewhere:8420"]) == 2
    assert "[NOT_OVER_HTTP]" in capsys.readouterr().err


def test_doctor_and_config_query_the_named_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = {"type": "workflow", "name": "theirs", "profiles": {"fusion": "rrf"}}
    answers: dict[str, Any] = {
        "/v1/profiles": {"items": [profile]},
        "/v1/config/schema": {"settings": {"theirs": 1}},
        "/readyz": {
            "dependencies": {"log": {"ok": False, "detail": "Kafka is down", "remedy": "Start it."}}
        },
    }
    app = FastAPI()
    app.get("/{path:path}")(lambda path: answers[f"/{path}"])
    with run_asgi_app(app) as url:
        monkeypatch.setenv("ANABRANCH_SERVER", url)
        assert main(["config", "profiles"]) == 0
        assert "theirs" in capsys.readouterr().out
        assert main(["config", "schema"]) == 0
        assert json.loads(capsys.readouterr().out)["settings"] == {"theirs": 1}
        assert main(["doctor"]) == 1
        assert "FAIL  server: log: Kafka is down" in capsys.readouterr().out


@pytest.mark.parametrize("command", [("doctor",), ("search", "x"), ("config", "profiles")])
def test_server_url_without_scheme_is_reported(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--server", "127.0.0.1:9"]) in (1, 2)
    output = "".join(capsys.readouterr())
    assert (
        "Use --server http://127.0.0.1:9." in output
        or "Use https://HOST or http://HOST:PORT." in output
    )


def test_local_command_error_does_not_mention_server_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topics", "list", "--data", str(tmp_path / "none")]) == 3
    assert "--server" not in capsys.readouterr().err
