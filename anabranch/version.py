"""The version of this program."""

from importlib.metadata import PackageNotFoundError, version


def get_program_version() -> str:
    """Of the installed distribution; of the sources where they run without being installed."""
    try:
        return version("anabranch")
    except PackageNotFoundError:
        return "0.1.0"
