"""Options that several commands share."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from anabranch.cli.output import (
    Column,
    extract_items,
    print_items,
    print_json,
    print_json_line,
    print_next_page,
    print_stderr,
)
from schemas.errors import ConfigurationError

if TYPE_CHECKING:
    from anabranch.config.settings import Settings
    from schemas.channels import Channel
    from schemas.errors import InvalidRequest

Flag = Parameter(negative="")
CollectionName = Annotated[str, Parameter(help="Collection name.")]
Yes = Annotated[bool, Parameter(negative="", help="Skip the confirmation prompt.")]
OutputFormat = Literal["text", "json", "ndjson"]


@Parameter(name="*")
@dataclass(frozen=True)
class CommonOptions:
    """Location of the data, and output options."""

    data: Annotated[Path | None, Parameter(help="Data folder.  [default: ./anabranch-data]")] = None
    config: Annotated[
        Path | None,
        Parameter(
            env_var="ANABRANCH_CONFIG",
            help="Settings file.  [default: anabranch.toml in the data folder]",
        ),
    ] = None
    set: Annotated[
        tuple[str, ...],
        Parameter(
            name="--set", negative="", help="Override a setting: section.key=value. Repeatable."
        ),
    ] = ()
    as_json: Annotated[
        bool, Parameter(name="--json", negative="", help="Short for --output json.")
    ] = False
    output: Annotated[
        OutputFormat,
        Parameter(
            help=(
                "Format of stdout: text, one JSON object, or one JSON object per line and item "
                "(ndjson)."
            )
        ),
    ] = "text"
    quiet: Annotated[
        bool, Parameter(name=["--quiet", "-q"], negative="", help="Print errors only.")
    ] = False
    verbose: Annotated[
        bool, Parameter(name=["--verbose", "-v"], negative="", help="Log debug messages.")
    ] = False
    no_color: Annotated[
        bool, Parameter(negative="", env_var="NO_COLOR", help="Disable colors.")
    ] = False

    wide: Annotated[
        bool,
        Parameter(negative="", help="Print whole columns, also beyond the width of the terminal."),
    ] = False

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

    def show(self, body: dict[str, Any], print_text: Callable[[], object]) -> int:
        """Print the body as JSON if that is requested, else call `print_text`. Return 0."""
        if self.is_json:
            self.print_result(body)
        else:
            print_text()
        return 0

    def print_items(
        self,
        items: Iterable[dict[str, Any]],
        columns: Sequence[Column],
        *,
        optional: Collection[str] = (),
    ) -> None:
        """Print a table, cut to the width of the terminal unless --wide is given."""
        is_cut = sys.stdout.isatty() and not self.wide
        max_width = shutil.get_terminal_size().columns if is_cut else None
        print_items(items, columns, max_width=max_width, optional=optional)

    def show_page(
        self, page: dict[str, Any], *columns: Column, optional: Collection[str] = ()
    ) -> int:
        """Print a page as JSON or as a table, with the cursor of the next page. Return 0.

        A terminal too narrow for the table shows no `optional` columns.
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
        from schemas.errors import ConfigurationError

        if self.server:
            raise ConfigurationError(
                "This command does not work over HTTP, but --server or ANABRANCH_SERVER is "
                f"{self.server}.",
                code="NOT_OVER_HTTP",
                remedy=(
                    "Run it on the server's machine with its --data folder or settings, and "
                    "without --server: `env -u ANABRANCH_SERVER anabranch …`."
                ),
            )
        return super().load_settings(*extra_sets)


@Parameter(name="*")
@dataclass(frozen=True)
class RemoteOptions(CommonOptions):
    """Options of commands that call the HTTP API."""

    server: Annotated[
        str | None,
        Parameter(
            env_var="ANABRANCH_SERVER", help="URL of a running server, instead of a data folder."
        ),
    ] = None
    tenant: Annotated[
        str | None,
        Parameter(help="Tenant to act for, instead of the credential's own. Operators only."),
    ] = None


@Parameter(name="*")
@dataclass(frozen=True)
class PageOptions:
    """Options of lists that are read page by page."""

    limit: Annotated[
        int, Parameter(help="Maximum number of items.", validator=Number(gte=1, lte=500))
    ] = 50
    after: Annotated[str | None, Parameter(help="Cursor printed with the previous page.")] = None

    def to_query(self) -> dict[str, Any]:
        return {"limit": self.limit, "after": self.after}


FIRST_PAGE = PageOptions()


def make_conflict_error(first_option: str, second_option: str) -> InvalidRequest:
    """Return the error for two options that contradict each other."""
    from schemas.errors import InvalidRequest

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
