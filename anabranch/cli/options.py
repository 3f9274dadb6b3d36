"""Options that every command takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from anabranch.cli.output import extract_items, print_json, print_json_line, print_stderr

if TYPE_CHECKING:
    from anabranch.config.settings import Settings

Flag = Parameter(negative="")
OutputFormat = Literal["text", "json", "ndjson"]


@Parameter(name="*")
@dataclass(frozen=True)
class CommonOptions:
    """Where the data are, and how to talk."""

    data: Annotated[Path | None, Parameter(help="Data folder.  [default: ./anabranch-data]")] = None
    config: Annotated[Path | None, Parameter(env_var="ANABRANCH_CONFIG", help="Settings file.  [default: anabranch.toml in the data folder]")] = None
    set: Annotated[tuple[str, ...], Parameter(name="--set", negative="", help="A setting, as section.key=value.")] = ()
    as_json: Annotated[bool, Parameter(name="--json", negative="", help="Short for --output json.")] = False
    output: Annotated[
        OutputFormat, Parameter(help="What is on stdout: text for people, one JSON object, or (ndjson) one object a line, an item each of a list.")
    ] = "text"
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="", help="Say only what went wrong.")] = False
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative="", help="Log more.")] = False
    no_color: Annotated[bool, Parameter(negative="", env_var="NO_COLOR", help="No colours.")] = False

    @property
    def is_json(self) -> bool:
        """Whether a program reads stdout."""
        return self.as_json or self.output != "text"

    def print_result(self, body: dict[str, Any]) -> None:
        """For a program."""
        if self.output == "ndjson":
            for item in extract_items(body):
                print_json_line(item)
            if body.get("next"):
                print_stderr(f"more: --after {body['next']}", quiet=self.quiet)
        else:
            print_json(body)

    def report_progress(self, text: str, body: dict[str, Any]) -> None:
        """How far something is: among the lines for a program that reads them, else as talk."""
        if self.output == "ndjson":
            print_json_line({"progress": body})
        else:
            print_stderr(text, quiet=self.quiet)

    def load_settings(self, *extra_sets: str) -> Settings:
        """Raises ConfigurationError."""
        from anabranch.config.loader import load_settings

        level_sets = ("logging.level=debug",) if self.verbose else ("logging.level=error",) if self.quiet else ()
        return load_settings(data_dir=self.data, config=self.config, sets=(*level_sets, *self.set, *extra_sets))

    def to_arguments(self) -> list[str]:
        """What makes a child read the same settings; its data folder comes in the environment."""
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
    """The same, for commands that work on this machine: they refuse a server that is named rather than work on another installation."""

    server: Annotated[str | None, Parameter(env_var="ANABRANCH_SERVER", show=False)] = None

    def load_settings(self, *extra_sets: str) -> Settings:
        """Raises ConfigurationError, also where a server is named."""
        from schemas.errors import ConfigurationError

        if self.server:
            raise ConfigurationError(
                f"This command does not ask a server, and --server or ANABRANCH_SERVER names {self.server}.",
                code="NOT_OVER_HTTP",
                remedy="Run it where that server runs, with its --data folder or settings, and without --server: `env -u ANABRANCH_SERVER anabranch …`.",
            )
        return super().load_settings(*extra_sets)


@Parameter(name="*")
@dataclass(frozen=True)
class RemoteOptions(CommonOptions):
    """The same, for commands that speak to a server."""

    server: Annotated[str | None, Parameter(env_var="ANABRANCH_SERVER", help="Address of a running server, in place of a data folder.")] = None
    tenant: Annotated[str | None, Parameter(help="Tenant to act for, in place of the credential's own: for operators only.")] = None
