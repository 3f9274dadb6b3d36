"""Apache Kafka's server as jars from Maven Central, and the Java runtime for it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import tempfile
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree

from schemas.errors import ConfigurationError

MIN_JAVA_VERSION = 17
_POM = resources.files(__package__) / "pom.xml"


def read_kafka_version() -> str:
    """Read the version pinned in `pom.xml`."""
    tree = ElementTree.fromstring(_POM.read_text())
    return str(tree.findtext("{*}properties/{*}kafka"))


def get_default_jars_dir() -> Path:
    """Return the user's folder for the jars of this version, shared by all data folders."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "anabranch" / f"kafka-{read_kafka_version()}"


def find_java() -> str | None:
    """Find `java` in JAVA_HOME, else on the path."""
    home = os.environ.get("JAVA_HOME")
    if home and (java_path := shutil.which("java", path=str(Path(home) / "bin"))):
        return java_path
    return shutil.which("java")


def parse_java_major(version_text: str) -> int | None:
    """Parse the feature release from the output of `java -version`: 17 for "17.0.15", 8 for
    "1.8.0_392".
    """
    match = re.search(r'version "(?:1\.)?(\d+)', version_text)
    return int(match[1]) if match else None


def find_missing_prerequisite(jars_dir: Path | None = None) -> str | None:
    """Describe in one sentence what this machine lacks to run Kafka, or return None.

    Maven is needed only until the jars are fetched.
    """
    java_path = find_java()
    if java_path is None:
        return (
            f"Java {MIN_JAVA_VERSION} or later is not installed (no `java` on the path and no "
            "JAVA_HOME)."
        )
    version_output = subprocess.run(
        [java_path, "-version"], capture_output=True, text=True, check=False
    )
    major = parse_java_major(version_output.stderr + version_output.stdout)
    if major is None or major < MIN_JAVA_VERSION:
        return (
            f"{java_path} is Java {major or 'of an unknown version'}; Kafka needs Java "
            f"{MIN_JAVA_VERSION} or later."
        )
    if not (jars_dir or get_default_jars_dir()).is_dir() and shutil.which("mvn") is None:
        return "Maven (`mvn`) is not installed, and Kafka's jars have not been fetched yet."
    return None


async def fetch_jars(jars_dir: Path) -> Path:
    """Return the folder with all jars, fetching them by Maven if it does not exist (about a
    minute).

    Several processes may fetch at once. Raises ConfigurationError if Java or Maven is missing or
    Maven fails.
    """
    problem = await asyncio.to_thread(find_missing_prerequisite, jars_dir)
    if problem:
        raise ConfigurationError(
            problem,
            code="KAFKA_PREREQUISITE",
            remedy=(
                "Install a JDK 17+ and Maven (Debian: openjdk-17-jre-headless, maven), or use "
                "the embedded log."
            ),
        )
    if not jars_dir.is_dir():
        await asyncio.to_thread(jars_dir.parent.mkdir, parents=True, exist_ok=True)
        await _download(jars_dir)
    return jars_dir


async def _download(jars_dir: Path) -> None:
    # Into a scratch folder that is renamed at the end, so that the folder appears complete or not
    # at all.
    with (
        tempfile.TemporaryDirectory(dir=jars_dir.parent) as scratch,
        resources.as_file(_POM) as pom,
    ):
        download_dir = Path(scratch) / "jars"
        arguments = [
            "-B",
            "-q",
            "-f",
            str(pom),
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={download_dir}",
        ]
        process = await asyncio.create_subprocess_exec(
            "mvn",
            *arguments,
            # Maven may run the extensions that `.mvn` in the working directory names.
            cwd=scratch,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        if process.returncode != 0:
            raise ConfigurationError(
                "Maven failed to fetch Kafka's jars: "
                f"{output.decode(errors='replace').strip()[-600:]}",
                code="KAFKA_JARS",
                remedy=(
                    "Check that Maven Central, or a mirror in ~/.m2/settings.xml, is reachable, "
                    "and try again."
                ),
            )
        try:
            download_dir.rename(jars_dir)
        except OSError:
            if not jars_dir.is_dir():  # else another process was faster, with the same jars
                raise
