"""The docs against the code: what they name exists, and what exists is in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.cli import application
from anabranch.process.metrics import Metrics
from anabranch.settings_loading import OTHER_NAMES, environment_name, known_keys
from api.app import routes_only
from docs.generate import drifted, filled
from schemas.events import declared
from tests.golden.error_codes import ROOMS, codes

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NO_CODES = {"JSON", "PDF", "DOCX", "HTML", "CSV", "XLSX", "TXT", "URL", "API", "RFC"}
"""Capitals on the page of errors that are no codes."""
BY_NAME = "ANABRANCH_SOURCES__"
"""A setting for each source, by its name."""


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.fixture(params=PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def page(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def test_the_generated_parts_agree_with_the_code() -> None:
    assert drifted() == {}, "run `make contracts`"


def test_a_generated_part_without_its_markers_is_noticed() -> None:
    with pytest.raises(ValueError, match="markers of topics"):
        filled("no markers here", "topics", "| a |")


def test_every_setting_is_in_the_reference() -> None:
    reference = text("docs/reference/settings.md")
    assert [key for key in known_keys() if environment_name(key) not in reference] == []


def test_every_endpoint_is_in_the_reference() -> None:
    reference = text("docs/reference/http.md")
    calls = [f"{method.upper()} {path}" for path, methods in routes_only().openapi()["paths"].items() for method in methods]
    assert [call for call in calls if f"### `{call}`" not in reference] == []


def test_every_event_is_in_the_reference() -> None:
    reference = text("docs/reference/events.md")
    assert [event.event_type() for event in declared() if f"`{event.event_type()}`" not in reference] == []


def test_every_command_is_in_the_reference() -> None:
    reference = text("docs/reference/command-line.md")
    assert [command for command in commands() if f"# anabranch {command}\n" not in reference] == []


def test_every_metric_is_in_operations() -> None:
    operations = text("docs/operations.md")
    assert [family.name for family in Metrics("0").registry.collect() if family.name not in operations] == []


def test_every_error_code_is_explained() -> None:
    assert sorted(codes() - explained()) == []


def test_no_error_code_is_explained_that_nobody_gives() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    assert [code for code in sorted(explained() - codes()) if f'"{code}"' not in source] == []


def explained() -> set[str]:
    """Codes in the first cell of a row, and those that running text names."""
    return set(re.findall(r"`([A-Z][A-Z0-9]+(?:_[A-Z0-9]+)*)`", text("docs/reference/errors.md"))) - NO_CODES - settings_named()


def settings_named() -> set[str]:
    """Settings are written without their prefix there."""
    return {name for name in re.findall(r"`([A-Z_]+)`", text("docs/reference/errors.md")) if "__" in name or name in ("API_KEY", "MODEL", "BASE_URL")}


def commands() -> list[str]:
    """All of them, with their groups: `topics lag`."""
    return list(_under(application(), ()))


def _under(app: object, path: tuple[str, ...]) -> Iterator[str]:
    children = [(name, child) for name, child in app.resolved_commands().items() if not name.startswith("-")]  # type: ignore[attr-defined]
    if path:
        yield " ".join(path)
    for name, child in children:
        yield from _under(child, (*path, name))


def test_every_command_that_a_page_shows_exists(page: Path) -> None:
    shown = re.findall(r"\banabranch ((?:[a-z]+ ?){1,2})", code_of(page.read_text(encoding="utf-8")))
    assert [command for command in shown if not exists(command.split())] == []


def test_every_command_that_a_remedy_names_exists() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    named = re.findall(r"`anabranch ((?:[a-z]+ ?)+)(--[a-z-]+)?", source)
    assert [(command, option) for command, option in named if not exists(command.split()) or option not in section(command.strip())] == []


def section(command: str) -> str:
    """What the reference says of a command, and of all."""
    reference = text("docs/reference/command-line.md")
    shared, *others = re.split(r"\n(?=#+ anabranch )", reference)
    return shared + next((one for one in others if one.splitlines()[0].endswith(f"anabranch {command}")), "")


def exists(tokens: list[str]) -> bool:
    known = set(commands())
    return " ".join(tokens) in known or (tokens[0] in known and not any(command.startswith(f"{tokens[0]} ") for command in known))


def code_of(markdown: str) -> str:
    """What stands in fences of shell, and between back-ticks."""
    fences = re.findall(r"```(?:sh|console)\n(.*?)```", markdown, re.DOTALL)
    return "\n".join([*fences, *re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", markdown, flags=re.DOTALL))])


def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", text("Makefile"), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z]+)", code_of(page.read_text(encoding="utf-8")))) <= targets


def test_every_setting_that_a_page_names_exists(page: Path) -> None:
    known = {environment_name(key) for key in known_keys()} | OTHER_NAMES
    named = {name.rstrip("_") for name in re.findall(r"ANABRANCH_[A-Z_]+", page.read_text(encoding="utf-8"))}
    assert [name for name in sorted(named - known) if not any(one.startswith(f"{name}_") for one in known) and not name.startswith(BY_NAME)] == []


def test_every_link_leads_somewhere(page: Path) -> None:
    markdown = page.read_text(encoding="utf-8")
    broken = [target for target in re.findall(r"\]\(([^)\s]+)\)", markdown) if not target.startswith("http") and not leads(page, target)]
    assert broken == []


def leads(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    found = (page.parent / path).resolve() if path else page
    return found.exists() and (not anchor or anchor in anchors(found))


def anchors(page: Path) -> set[str]:
    """As they are made of headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("lock", ["requirements.lock", ".ci/uv.lock", ".ci/check-jsonschema.lock"])
def test_a_lock_holds_hashes_and_no_address(lock: str) -> None:
    pinned = text(lock)
    assert "://" not in pinned
    requirements = re.split(r"\n(?=[a-z0-9])", re.sub(r"^#.*\n", "", pinned, flags=re.MULTILINE))
    assert [requirement.splitlines()[0] for requirement in requirements if requirement.strip() and "--hash=sha256:" not in requirement] == []
