"""Options that several commands share."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from anabranch.cli.output import (
    Column,
    extract_items,
    print_items,
    print_json,
    print_json_line,
    print_next_page,
    print_stderr,
    print_table,
)
from schemas.errors import ConfigurationError, InvalidRequest

if TYPE_CHECKING:
    from anabranch.config.settings import Settings
    from schemas.channels import Channel

CollectionName = Annotated[str, Parameter(help="Collection name.")]
Yes = Annotated[bool, Parameter(help="Skip the confirmation prompt.")]
OutputFormat = Literal["text", "json", "ndjson"]


@Parameter(name="*")
@dataclass(frozen=True)
class CommonOptions:
    """Location of the data, and output options."""

    data: Path | None = None
    """Data folder.  [default: ./anabranch-data]"""
    config: Annotated[Path | None, Parameter(env_var="ANABRANCH_CONFIG")] = None
    """Settings file.  [default: anabranch.toml in the data folder]"""
    set: Annotated[tuple[str, ...], Parameter(name="--set")] = ()
    """Override a setting: section.key=value. Repeatable."""
    as_json: Annotated[bool, Parameter(name="--json")] = False
    """Short for --output json."""
    output: OutputFormat = "text"
    """Format of stdout: text, one JSON object, or one JSON object per line and item (ndjson)."""
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"])] = False
    """Print results and errors only."""
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"])] = False
    """Log debug messages."""
    # Any value but an empty one counts (no-color.org), which cyclopts would parse as a boolean.
    no_color: Annotated[bool, Parameter(show_default=False)] = bool(os.environ.get("NO_COLOR"))
    """Disable colors, as NO_COLOR=1 does."""

    wide: bool = False
    """Print whole columns, also beyond the width of the terminal."""

    @property
    def is_json(self) -> bool:
        return self.as_json or self.output != "text"

    def print_result(self, body: dict[str, Any]) -> None:
        """Print the result as JSON, or as one line per item."""
        if self.output == "ndjson":
            for item in extract_items(body):
                print_json_line(item)
            print_next_page(body.get("next"), quiet=self.quiet)
        else:
            print_json(body)

    def print_if_json(self, body: dict[str, Any]) -> bool:
        """Print the body as JSON if that is requested, and return whether it was."""
        if self.is_json:
            self.print_result(body)
        return self.is_json

    def print_note(self, text: str) -> None:
        """Print a message to stderr, unless --quiet is given."""
        print_stderr(text, quiet=self.quiet)

    def show(self, body: dict[str, Any], print_text: Callable[[], object]) -> int:
        """Print the body as JSON if that is requested, else call `print_text`. Return 0."""
        if not self.print_if_json(body):
            print_text()
        return 0

    def print_items(
        self,
        items: Iterable[dict[str, Any]],
        columns: Sequence[Column],
        *,
        optional: Sequence[str] = (),
    ) -> None:
        print_items(items, columns, max_width=self.find_max_width(), optional=optional)

    def print_table(self, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        print_table(headings, rows, max_width=self.find_max_width())

    def find_max_width(self) -> int | None:
        """Return the width of the terminal, to which tables are cut unless --wide is given."""
        is_cut = sys.stdout.isatty() and not self.wide
        return shutil.get_terminal_size().columns if is_cut else None

    def show_page(
        self, page: dict[str, Any], *columns: Column, optional: Sequence[str] = ()
    ) -> int:
        """Print a page as JSON or as a table, with the cursor of the next page. Return 0.

        A terminal too narrow for the table leaves `optional` columns out, the first one first.
        """

        def print_text() -> None:
            self.print_items(page["items"], columns, optional=optional)
            print_next_page(page.get("next"), quiet=self.quiet)

        return self.show(page, print_text)

    def acknowledge(self, body: dict[str, Any], text: str) -> int:
        """Print the body as JSON if that is requested, else the text to stderr. Return 0."""
        return self.show(body, lambda: print_stderr(text, quiet=self.quiet))

    def report_progress(self, text: str, body: dict[str, Any]) -> None:
        """Print progress to stdout as a JSON line for ndjson, else as text to stderr."""
        if self.output == "ndjson":
            print_json_line({"progress": body})
        else:
            print_stderr(text, quiet=self.quiet)

    def load_settings(self, *extra_sets: str) -> Settings:
        """Load the settings. Raises ConfigurationError."""
        from anabranch.config.loader import load_settings

        level_sets = (
            ("logging.level=debug",)
            if self.verbose
            else ("logging.level=error",)
            if self.quiet
            else ()
        )
        return load_settings(
            data_dir=self.data, config=self.config, sets=(*level_sets, *self.set, *extra_sets)
        )

    def to_arguments(self) -> list[str]:
        """Return arguments with which a child process loads the same settings.

        The environment of the child names the data folder.
        """
        config_arguments = ["--config", str(self.config.resolve())] if self.config else []
        return [
            *config_arguments,
            *(token for assignment in self.set for token in ("--set", assignment)),
            *(["-v"] if self.verbose else []),
            *(["-q"] if self.quiet else []),
        ]


@Parameter(name="*")
@dataclass(frozen=True)
class LocalOptions(CommonOptions):
    """Options of commands that work on this machine's data.

    They reject --server instead of ignoring it.
    """

    server: Annotated[str | None, Parameter(env_var="ANABRANCH_SERVER", show=False)] = None

    def load_settings(self, *extra_sets: str) -> Settings:
        """Load the settings. Raises ConfigurationError, also if --server is given."""
        if self.server:
            raise ConfigurationError(
                "This command does not work over HTTP, but --server or ANABRANCH_SERVER is "
                f"{self.server}.",
                code="NOT_OVER_HTTP",
                remedy="Run it on the server's machine with its --data folder or settings, and "
                "without --server: `env -u ANABRANCH_SERVER anabranch …`.",
            )
        return super().load_settings(*extra_sets)


@Parameter(name="*")
@dataclass(frozen=True)
class RemoteOptions(CommonOptions):
    """Options of commands that call the HTTP API."""

    server: Annotated[str | None, Parameter(env_var="ANABRANCH_SERVER")] = None
    """URL of a running server, instead of a data folder."""
    tenant: str | None = None
    """Tenant to act for, instead of the credential's own. Operators only."""


@Parameter(name="*")
@dataclass(frozen=True)
class PageOptions:
    """Options of lists that are read page by page."""

    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=500))] = 50
    """Maximum number of items."""
    after: str | None = None
    """Cursor printed with the previous page."""

    def to_query(self) -> dict[str, Any]:
        return {"limit": self.limit, "after": self.after}


@Parameter(name="*")
@dataclass(frozen=True)
class SortedPageOptions(PageOptions):
    """Options of lists that the server sorts."""

    sort: str | None = None
    """Column to sort by: COLUMN or COLUMN:desc."""

    def to_query(self, **fields: str) -> dict[str, Any]:
        """Return parameters of the list, with `fields` for printed headings."""
        heading, colon, direction = (self.sort or "").partition(":")
        sort = f"{fields.get(heading, heading)}{colon}{direction}"
        return super().to_query() | {"sort": sort or None}


def make_group(name: str, description: str | None = None) -> App:
    """Make a group of commands. `anabranch.cli.COMMANDS` describes those of the first level."""
    # No option has a negative form, unless it names one.
    return App(name=name, help=description, default_parameter=Parameter(negative=""))


COMMON, LOCAL, REMOTE = CommonOptions(), LocalOptions(), RemoteOptions()
FIRST_PAGE, FIRST_SORTED_PAGE = PageOptions(), SortedPageOptions()


def make_conflict_error(first_option: str, second_option: str) -> InvalidRequest:
    """Return the error for two options that contradict each other."""
    return InvalidRequest(
        f"{first_option} and {second_option} cannot be combined.", remedy="Use only one of them."
    )


QUERY_STAGES = ("control", "runs")
"""Stages of a temporary server for queries: they project generations and run records."""
JUDGEMENT_STAGES = (*QUERY_STAGES, "judgements")
"""Stages that project feedback and facts, too."""


def parse_channels(text: str) -> list[Channel]:
    """Parse comma-separated names. Raises ConfigurationError for an unknown one."""
    from schemas.channels import CHANNELS

    requested = [name.strip() for name in text.split(",")]
    unknown = [name for name in requested if name not in CHANNELS]
    if unknown:
        raise ConfigurationError(
            f"Unknown channel {', '.join(map(repr, unknown))}.",
            code="UNKNOWN_CHANNEL",
            remedy=f"Available channels: {', '.join(CHANNELS)}.",
        )
    return [channel for channel in CHANNELS if channel in requested]


def parse_metadata(assignments: Sequence[str]) -> dict[str, Any]:
    """Parse `key=value`, where value is JSON or else text. Raises ConfigurationError."""
    return dict(map(_parse_assignment, assignments))


def _parse_assignment(assignment: str) -> tuple[str, Any]:
    key, sign, value = assignment.partition("=")
    if not sign or not key:
        raise ConfigurationError(
            f"Invalid --metadata {assignment}.",
            code="NOT_AN_ASSIGNMENT",
            remedy="Use --metadata key=value.",
        )
    try:
        return key, json.loads(value) if value else None
    except ValueError:
        return key, value
