"""Version of the program."""

from importlib.metadata import PackageNotFoundError, version


def get_program_version() -> str:
    """Return the version of the installed distribution, else that of the sources."""
    try:
        return version("anabranch")
    except PackageNotFoundError:
        return "0.1.0"
