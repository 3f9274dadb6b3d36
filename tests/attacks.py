"""Attack the product for longer than the suite does, and write down what held: `make attack`.

Each row of the table is one attack with the tests that perform it. A test counts as one attempt, or
as many as it reports by the property `attempts` (requests that were made up, patterns times texts).
The same tests run in the suite, with fewer examples.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
SECURITY_PAGE = ROOT / "docs" / "security.md"
BEGIN, END = "<!-- generated: attacks -->", "<!-- end: attacks -->"

ATTACKS: dict[str, tuple[str, ...]] = {
    "A web page calls the API: DNS rebinding, cross-site forms, stolen sessions": (
        "tests/journey/test_web_page_attacks.py",
        "tests/unit/test_browser_guard.py",
        "tests/unit/test_authentication.py",
    ),
    "Calls without a credential, or with one that is wrong, revoked or guessed": (
        "tests/unit/test_authentication.py",
        "tests/journey/test_local_token.py",
        "tests/integration/test_api_keys.py",
        "tests/journey/test_credentials.py",
        "tests/unit/test_cli_argument_errors.py",
    ),
    "Forged JSON Web Tokens": ("tests/unit/test_jwt.py",),
    "A role does what a higher one may": ("tests/unit/test_roles.py",),
    "One tenant or user reads or changes another's data, over every operation": (
        "tests/journey/test_tenant_isolation.py",
        "tests/integration/test_document_access.py",
    ),
    "A second database role reads foreign rows": ("tests/integration/test_row_level_security.py",),
    "Settings and sources over HTTP send keys or texts elsewhere": (
        "tests/journey/test_secret_exfiltration.py",
        "tests/contract/test_hostile_replies.py",
        "tests/unit/test_approvals.py",
        "tests/unit/test_source_service.py",
    ),
    "Passwords in files, process lists and output": (
        "tests/journey/test_database_password_leaks.py",
    ),
    "Another account of the machine connects to the embedded Postgres": (
        "tests/integration/test_embedded_postgres.py",
    ),
    "An erased text or its key is read from the disk": (
        "tests/journey/test_erasure_on_disk.py",
        "tests/unit/test_key_file.py",
        "tests/integration/test_key_rotation.py",
    ),
    "A producer takes over, locks or withdraws documents of others": (
        "tests/unit/test_ingress.py",
        "tests/unit/test_ingress_check.py",
    ),
    "Forged, changed or copied events on our own topics": (
        "tests/integration/test_forged_events.py",
    ),
    "A producer writes to topics that are not its own (Kafka ACLs)": (
        "tests/integration/test_kafka_acls.py",
        "tests/unit/test_kafka_client_settings.py",
    ),
    "Texts and questions that freeze a worker or the API": ("tests/unit/test_linear_time.py",),
    "A parser that was taken over reads files, calls addresses, starts programs": (
        "tests/contract/test_confinement.py",
        "tests/journey/test_working_folder.py",
        "tests/contract/test_sandbox.py",
    ),
    "Slow, endless and oversized requests": (
        "tests/integration/test_http_bounds.py",
        "tests/unit/test_metrics_server.py",
        "tests/journey/test_ingest_limits.py",
        "tests/unit/test_validation_remedies.py",
    ),
    "Addresses inside the network, however they are written": (
        "tests/unit/test_public_addresses.py",
        "tests/contract/test_fetcher.py",
        "tests/journey/test_standing_questions.py",
    ),
    "Control characters reach a terminal or a log": (
        "tests/unit/test_terminal.py",
        "tests/journey/test_terminal_output.py",
    ),
    "Credentials in URLs and server paths are shown": (
        "tests/unit/test_public_addresses.py",
        "tests/journey/test_server_path_leaks.py",
    ),
    "Personal identifiers leave a redacted answer, prompt, stream, run, cache or log": (
        "tests/unit/test_redaction.py",
        "tests/journey/test_redaction.py",
    ),
    "Words leave before the verdict of the judge, or an answer that it blocks": (
        "tests/unit/test_judge.py",
    ),
    "Broken and hostile files": ("tests/journey/test_bad_input.py",),
    "Unknown, misspelt and repeated query parameters": ("tests/unit/test_query_parameters.py",),
    "Requests made up from the OpenAPI document": ("tests/journey/test_openapi_fuzz.py",),
}


@dataclass(slots=True)
class AttackResult:
    attempts: int = 0
    blocked: int = 0
    skipped: int = 0


def run_tests(files: Iterable[str], examples: int) -> dict[str, AttackResult]:
    """Results by test file. The tests' own output goes to this program's."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-o",
            "junit_family=xunit1",
            f"--junit-xml={report}",
            *files,
        ]
        subprocess.run(
            command, cwd=ROOT, env=os.environ | {"ATTACK_EXAMPLES": str(examples)}, check=False
        )
        return read_report(report)


def read_report(report: Path) -> dict[str, AttackResult]:
    """Results by test file, from a report that pytest wrote with `-o junit_family=xunit1`."""
    return _collect_results(ElementTree.parse(report).iter("testcase"))


def _collect_results(cases: Iterable[ElementTree.Element]) -> dict[str, AttackResult]:
    results: dict[str, AttackResult] = {}
    for case in cases:
        result = results.setdefault(case.attrib["file"], AttackResult())
        if case.find("skipped") is not None:
            result.skipped += 1
            continue
        properties = {item.attrib["name"]: item.attrib["value"] for item in case.iter("property")}
        attempts = int(properties.get("attempts", 1))
        result.attempts += attempts
        failed = case.find("failure") is not None or case.find("error") is not None
        result.blocked += 0 if failed else attempts
    return results


def format_table(results: dict[str, AttackResult]) -> str:
    lines = ["| attack | attempts | blocked |", "| --- | --- | --- |"]
    for attack, files in ATTACKS.items():
        attack_results = [results.get(file, AttackResult()) for file in files]
        attempts, blocked, skipped = (
            sum(getattr(result, name) for result in attack_results)
            for name in ("attempts", "blocked", "skipped")
        )
        lines.append(
            f"| {attack} | {attempts:,} | {blocked:,}{f' ({skipped} skipped)' if skipped else ''} |"
        )
    return "\n".join(lines)


def write_table(text: str) -> None:
    page = SECURITY_PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    SECURITY_PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--examples",
        type=int,
        default=50,
        help="requests made up for each operation, valid and invalid",
    )
    parser.add_argument(
        "--write", action="store_true", help="write the table into docs/security.md"
    )
    parser.add_argument(
        "--report",
        type=Path,
        help="count what this JUnit file of an earlier run says, and run nothing",
    )
    arguments = parser.parse_args()
    results = (
        read_report(arguments.report)
        if arguments.report
        else run_tests(
            dict.fromkeys(file for files in ATTACKS.values() for file in files), arguments.examples
        )
    )
    text = format_table(results)
    print(text)
    if arguments.write:
        write_table(text)
    results_of_attacks = [
        results[file] for files in ATTACKS.values() for file in files if file in results
    ]
    return (
        0
        if results_of_attacks
        and all(result.blocked == result.attempts for result in results_of_attacks)
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
