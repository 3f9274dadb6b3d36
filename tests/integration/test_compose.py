"""`docker-compose.yml` against the code that it configures. (Against the compose schema: `make compose`. Nothing here starts a container.)"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import asyncpg
import pytest
import yaml

from anabranch.cli import application
from anabranch.settings import Settings
from anabranch.settings_loading import environment_name, known_keys, load_settings
from processors import STAGES

ROOT = Path(__file__).parents[2]
REQUIRED = re.compile(r"\$\{(\w+)(:[?-])?([^}]*)\}")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "docker-compose.yml").read_text()))


@pytest.fixture
def own(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The services that run this program."""
    return {name: service for name, service in compose["services"].items() if service["image"].startswith("anabranch:")}


def filled(text: object) -> str:
    """As compose would fill it in, with a word for each value that a person must choose."""
    return REQUIRED.sub(lambda found: found[3] if found[2] == ":-" else f"chosen-value-of-{found[1].lower()}", str(text))


def stages_of(service: dict[str, Any]) -> list[str]:
    command = service["command"]
    return command[command.index("--stages") + 1].split(",") if "--stages" in command else []


def test_every_environment_name_is_a_setting(own: dict[str, dict[str, Any]]) -> None:
    known = {environment_name(key) for key in known_keys()}
    given = {name for service in own.values() for name in service["environment"]}
    assert given and given <= known


def test_the_settings_load_as_compose_gives_them(own: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    for service in own.values():
        for name, value in service["environment"].items():
            monkeypatch.setenv(name, filled(value))
        settings: Settings = load_settings()
        assert (settings.log_kind, settings.mode) == ("kafka", "external")


def test_every_stage_runs_in_exactly_one_service(own: dict[str, dict[str, Any]]) -> None:
    run = [stage for service in own.values() for stage in stages_of(service)]
    assert sorted(run) == sorted(stage.name for stage in STAGES)


def test_every_command_is_one_that_the_program_has(own: dict[str, dict[str, Any]]) -> None:
    app = application()
    for service in own.values():
        function, bound, _ = app.parse_args([filled(token) for token in service["command"]], print_error=False, exit_on_error=False)
        assert callable(function) and bound is not None


def test_addresses_name_services_and_the_ports_they_listen_on(compose: dict[str, Any], own: dict[str, dict[str, Any]]) -> None:
    services = compose["services"]
    for service in own.values():
        environment = {name: filled(value) for name, value in service["environment"].items()}
        database = urlsplit(environment["ANABRANCH_DATABASE__URL"])
        assert (database.hostname, database.port) == ("postgres", 5432)
        assert database.hostname in services
        host, port = environment["ANABRANCH_KAFKA__BOOTSTRAP_SERVERS"].split(":")
        assert f"INTERNAL://:{port}" in services[host]["environment"]["KAFKA_LISTENERS"]
        assert f"INTERNAL://{host}:{port}" in services[host]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
        storage = urlsplit(environment["ANABRANCH_STORAGE__URL"])
        assert f"storage:{storage.netloc}" in services["bucket"]["command"]
        assert dict(parse_qsl(storage.query))["endpoint"] == services["bucket"]["environment"]["RCLONE_CONFIG_STORAGE_ENDPOINT"]


def test_published_ports_are_open_to_this_machine_only(compose: dict[str, Any]) -> None:
    published = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert published and all(port.startswith("127.0.0.1:") for port in published)


def test_what_a_person_must_choose_is_in_the_example(compose: dict[str, Any]) -> None:
    example = {line.partition("=")[0] for line in (ROOT / ".env.example").read_text().splitlines() if "=" in line}
    wanted = {found[1] for found in REQUIRED.finditer((ROOT / "docker-compose.yml").read_text())}
    assert wanted == example


def test_whoever_is_waited_for_can_say_that_it_is_ready(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        for other, waiting in service.get("depends_on", {}).items():
            if waiting["condition"] == "service_healthy":
                assert "healthcheck" in compose["services"][other], f"{name} waits for {other}"


def test_no_service_keeps_privileges_it_does_not_need(compose: dict[str, Any], own: dict[str, dict[str, Any]]) -> None:
    for name, service in compose["services"].items():
        assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"]), name
        assert service["pids_limit"] and service["mem_limit"], name
    assert all(service["read_only"] and not service.get("cap_add") for service in own.values())


def test_only_the_roles_service_signs_in_as_superuser(compose: dict[str, Any], own: dict[str, dict[str, Any]]) -> None:
    signed_in = {name: urlsplit(filled(service["environment"]["ANABRANCH_DATABASE__URL"])).username for name, service in own.items()}
    assert signed_in["api"] == "anabranch_api" and signed_in["migrate"] == "anabranch_migrate"
    assert {name for name, user in signed_in.items() if user == "postgres"} == set()
    assert [name for name, service in compose["services"].items() if "PGUSER" in service.get("environment", {})] == ["roles"]


def test_kafka_knows_every_principal_and_lets_nobody_else_in(compose: dict[str, Any], own: dict[str, dict[str, Any]]) -> None:
    kafka = compose["services"]["kafka"]["environment"]
    assert "PLAINTEXT" not in {part.partition(":")[2] for part in kafka["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(",")}
    assert kafka["KAFKA_ALLOW_EVERYONE_IF_NO_ACL_FOUND"] == "false" and kafka["KAFKA_AUTHORIZER_CLASS_NAME"].endswith("StandardAuthorizer")
    users = dict(re.findall(r'user_([\w-]+)="([^"]*)"', filled(kafka["KAFKA_LISTENER_NAME_INTERNAL_PLAIN_SASL_JAAS_CONFIG"])))
    for service in own.values():
        environment = {name: filled(value) for name, value in service["environment"].items()}
        assert users[environment["ANABRANCH_KAFKA__SASL_USERNAME"]] == environment["ANABRANCH_KAFKA__SASL_PASSWORD"]
    assert set(users) == {"anabranch-admin", "anabranch-api", "anabranch-worker", "producer"}


async def test_the_roles_script_may_run_again(compose: dict[str, Any], database: str) -> None:
    script = filled(compose["configs"]["roles"]["content"]).replace("$$$$", "$$")
    connection = await asyncpg.connect(database)
    try:
        for _ in range(2):
            await connection.execute(script)
        rows = await connection.fetch(
            "select rolname, rolsuper, rolcanlogin, pg_has_role(oid, 'anabranch_owner', 'set') as owns from pg_roles where rolname ~ '^anabranch_(m|w|a)'"
        )
    finally:
        await connection.close()
    assert {tuple(row) for row in rows} == {(f"anabranch_{name}", False, True, True) for name in ("migrate", "worker", "api")}
