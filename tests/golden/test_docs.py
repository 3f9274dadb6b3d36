"""The docs against the code: every name in the docs exists, and every name is documented."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.cli import build_app
from anabranch.cli.errors import CLI_EQUIVALENTS
from anabranch.config.loader import NON_SETTING_VARIABLES, list_setting_names, to_environment_name
from docs.generate import find_outdated_files, replace_section
from docs.tables import PACKAGES
from processors import EVENT_CLASSES, STAGES, TOPICS
from services.instrumentation.metrics import Metrics
from tests.golden.error_codes import collect_codes
from tests.support.api_client import build_openapi_document

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NO_CODES = {"JSON", "PDF", "DOCX", "HTML", "CSV", "XLSX", "TXT", "URL", "API", "RFC"}
"""Capitals on the page of errors that are no codes."""
SOURCE_SETTINGS_PREFIX = "ANABRANCH_SOURCES__"
"""A setting for each source, by its name."""


def read_text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.fixture(params=PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def page(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def test_generated_sections_match_code() -> None:
    assert find_outdated_files() == {}, "run `make contracts`"


def test_missing_section_markers_raise_error() -> None:
    with pytest.raises(ValueError, match="markers of topics"):
        replace_section("no markers here", "topics", "| a |")


def test_reference_lists_every_setting() -> None:
    reference = read_text("docs/reference/settings.md")
    assert [key for key in list_setting_names() if to_environment_name(key) not in reference] == []


def test_reference_lists_every_endpoint() -> None:
    reference = read_text("docs/reference/http.md")
    calls = [
        f"{method.upper()} {path}"
        for path, methods in build_openapi_document()["paths"].items()
        for method in methods
    ]
    assert [call for call in calls if f"### `{call}`" not in reference] == []


def test_reference_lists_every_event() -> None:
    reference = read_text("docs/reference/events.md")
    assert [
        event.event_type() for event in EVENT_CLASSES if f"`{event.event_type()}`" not in reference
    ] == []


def test_reference_lists_every_command() -> None:
    reference = read_text("docs/reference/command-line.md")
    assert [
        command for command in list_commands() if f"# anabranch {command}\n" not in reference
    ] == []


def test_operations_page_lists_every_metric() -> None:
    operations = read_text("docs/operations.md")
    assert [
        family.name for family in Metrics("0").registry.collect() if family.name not in operations
    ] == []


def test_error_reference_explains_every_code() -> None:
    assert sorted(collect_codes() - list_explained_codes()) == []


def test_error_reference_has_no_unused_codes() -> None:
    source = "\n".join(
        path.read_text(encoding="utf-8")
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    )
    assert [
        code
        for code in sorted(list_explained_codes() - collect_codes())
        if f'"{code}"' not in source
    ] == []


def list_explained_codes() -> set[str]:
    """Return the codes in the first cells of tables and in running text."""
    return (
        set(re.findall(r"`([A-Z][A-Z0-9]+(?:_[A-Z0-9]+)*)`", read_text("docs/reference/errors.md")))
        - NO_CODES
        - list_settings_named()
    )


def list_settings_named() -> set[str]:
    """Return the settings, which the page writes without their prefix."""
    return {
        name
        for name in re.findall(r"`([A-Z_]+)`", read_text("docs/reference/errors.md"))
        if "__" in name or name in ("API_KEY", "MODEL", "BASE_URL")
    }


def list_commands() -> list[str]:
    """Return all commands, with their groups: `topics lag`."""
    return list(_walk_commands(build_app(), ()))


def _walk_commands(app: object, path: tuple[str, ...]) -> Iterator[str]:
    children = [
        (name, child) for name, child in app.resolved_commands().items() if not name.startswith("-")
    ]  # type: ignore[attr-defined]
    if path:
        yield " ".join(path)
    for name, child in children:
        yield from _walk_commands(child, (*path, name))


def test_commands_shown_in_docs_exist(page: Path) -> None:
    documented = re.findall(
        r"\banabranch ((?:[a-z]+(?:-[a-z]+)* ?){1,2})",
        extract_code(page.read_text(encoding="utf-8")),
    )
    assert [command for command in documented if not command_exists(command.split())] == []


def test_commands_named_in_remedies_exist() -> None:
    source = "\n".join(
        path.read_text(encoding="utf-8")
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    )
    named = re.findall(r"`anabranch ((?:[a-z]+ ?)+)(--[a-z-]+)?", source)
    assert [
        (command, option)
        for command, option in named
        if not command_exists(command.split())
        or option not in read_command_section(command.strip())
    ] == []


def test_calls_named_in_remedies_have_a_command() -> None:
    source = "\n".join(
        path.read_text(encoding="utf-8")
        for package in ("processors", "retrieval", "services", "sql")
        for path in (ROOT / package).rglob("*.py")
    )
    remedies = " ".join(re.findall(r'remedy=\(?\s*((?:f?"[^"]*"\s*)+)', source))
    named = re.findall(r"[A-Z]+ /v1/[\w/{}-]+", re.sub(r'"\s*"', "", remedies))
    assert {"POST /v1/runs/{run}/diff", "GET /v1/runs"} <= set(named)
    assert set(named) <= set(CLI_EQUIVALENTS)


def read_command_section(command: str) -> str:
    """Return the reference text of a command and of all commands."""
    reference = read_text("docs/reference/command-line.md")
    shared, *others = re.split(r"\n(?=#+ anabranch )", reference)
    return shared + next(
        (one for one in others if one.splitlines()[0].endswith(f"anabranch {command}")), ""
    )


def command_exists(tokens: list[str]) -> bool:
    commands = set(list_commands())
    return " ".join(tokens) in commands or (
        tokens[0] in commands
        and not any(command.startswith(f"{tokens[0]} ") for command in commands)
    )


def extract_code(markdown: str) -> str:
    """Return the contents of shell blocks and of inline code."""
    fences = re.findall(r"```(?:sh|console)\n(.*?)```", markdown, re.DOTALL)
    return "\n".join(
        [*fences, *re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", markdown, flags=re.DOTALL))]
    )


def test_make_targets_named_in_docs_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", read_text("Makefile"), re.MULTILINE))
    assert (
        set(re.findall(r"\bmake ([a-z]+)", extract_code(page.read_text(encoding="utf-8"))))
        <= targets
    )


def test_settings_named_in_docs_exist(page: Path) -> None:
    variables = {to_environment_name(key) for key in list_setting_names()} | NON_SETTING_VARIABLES
    named = {
        name.rstrip("_")
        for name in re.findall(r"ANABRANCH_[A-Z0-9_]+", page.read_text(encoding="utf-8"))
    }
    assert [
        name
        for name in sorted(named - variables)
        if not any(one.startswith(f"{name}_") for one in variables)
        and not name.startswith(SOURCE_SETTINGS_PREFIX)
    ] == []


def test_relative_links_resolve(page: Path) -> None:
    # A link in code is an example.
    markdown = re.sub("`[^`\n]+`", "", page.read_text(encoding="utf-8"))
    broken = [
        target
        for target in re.findall(r"\]\(([^)\s]+)\)", markdown)
        if not target.startswith("http") and not link_resolves(page, target)
    ]
    assert broken == []


def link_resolves(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    found = (page.parent / path).resolve() if path else page
    return found.exists() and (not anchor or anchor in list_anchors(found))


def list_anchors(page: Path) -> set[str]:
    """Return the anchors of the headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_distributed_workers_of_the_page_run_every_stage() -> None:
    commands = re.findall(r"worker --stages ([\w,]+)", read_text("docs/how-to/run-on-kafka.md"))
    names = {name for command in commands for name in command.split(",")}
    assert names == {stage.name for stage in STAGES}, "name the stage in a command of the page"


def test_extras_are_installed_from_a_clone_with_the_hashes_of_the_lock() -> None:
    known = tomllib.loads(read_text("pyproject.toml"))["project"]["optional-dependencies"]
    files = [*PAGES, *(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))]
    texts = [path.read_text(encoding="utf-8") for path in files]
    named = {name for text in texts for name in re.findall(r"EXTRAS=\"?([a-z]+)", text)}
    assert named | {"dev"} == set(known) and not any("install 'anabranch[" in one for one in texts)
    command = ["make", "--dry-run", "install", "EXTRAS=grpc models"]
    planned = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "--constraint requirements-dev.lock --extra grpc --extra models" in planned


LOCKS = [
    "requirements.lock",
    "requirements-dev.lock",
    ".ci/build.lock",
    ".ci/check-jsonschema.lock",
    ".ci/node.lock",
]


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_file_has_hashes_and_no_urls(lock: str) -> None:
    pinned = read_text(lock)
    assert "://" not in pinned
    requirements = re.split(r"\n(?=[a-z0-9])", re.sub(r"^#.*\n", "", pinned, flags=re.MULTILINE))
    assert [
        requirement.splitlines()[0]
        for requirement in requirements
        if requirement.strip() and "--hash=sha256:" not in requirement
    ] == []


def test_development_lock_adds_packages_to_the_runtime_lock_and_changes_none() -> None:
    runtime, development = (
        # Without markers, which a tool may widen to further platforms.
        set(re.findall(r"^[\w.-]+==[^\s;\\]+", read_text(lock), re.MULTILINE))
        for lock in LOCKS[:2]
    )
    assert runtime < development
    names = {pin.split("==")[0] for pin in runtime}
    assert "faust-streaming" in names
    assert not names & {"arcadedb-embedded", "hatchling", "moto", "mypy", "pytest", "ruff", "scipy"}


def test_screens_name_every_stage() -> None:
    words = read_text("web/src/stream/words.ts")
    # In both languages.
    assert [stage.name for stage in STAGES if words.count(f"      {stage.name}: '") != 2] == []


def test_events_screen_filters_by_every_topic() -> None:
    source = (ROOT / "web/src/stream/events/filters.tsx").read_text(encoding="utf-8")
    listed = re.findall(r"^  '(\w+)',$", source, re.MULTILINE)
    assert {*listed, "control"} == {str(topic) for topic in TOPICS}
