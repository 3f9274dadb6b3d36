"""`docker-compose.yml` against the code that it configures. (Against the compose schema: `make
compose`. Nothing here starts a container.)
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import asyncpg
import pytest
import yaml

from anabranch.cli import build_app
from anabranch.config.loader import list_setting_names, load_settings, to_environment_name
from anabranch.config.settings import Settings
from processors import STAGES

ROOT = Path(__file__).parents[2]
VARIABLE_PATTERN = re.compile(r"\$\{(\w+)(:[?-])?([^}]*)\}")


@pytest.fixture(scope="module")
def compose_config() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "docker-compose.yml").read_text()))


@pytest.fixture
def own_services(compose_config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the services that run this program."""
    return {
        name: service
        for name, service in compose_config["services"].items()
        if service["image"].startswith("anabranch:")
    }


def interpolate_variables(text: object) -> str:
    """Interpolate variables as compose does, with a placeholder for each required one."""
    return VARIABLE_PATTERN.sub(
        lambda found: found[3] if found[2] == ":-" else f"chosen-value-of-{found[1].lower()}",
        str(text),
    )


def parse_stages(service: dict[str, Any]) -> list[str]:
    command = service["command"]
    return command[command.index("--stages") + 1].split(",") if "--stages" in command else []


def test_every_environment_variable_is_a_setting(own_services: dict[str, dict[str, Any]]) -> None:
    variables = {to_environment_name(key) for key in list_setting_names()}
    given = {name for service in own_services.values() for name in service["environment"]}
    assert given and given <= variables


def test_settings_load_from_compose_environment(
    own_services: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for service in own_services.values():
        for name, value in service["environment"].items():
            monkeypatch.setenv(name, interpolate_variables(value))
        settings: Settings = load_settings()
        assert (settings.log_kind, settings.mode) == ("kafka", "external")


def test_every_stage_runs_in_exactly_one_service(own_services: dict[str, dict[str, Any]]) -> None:
    run = [stage for service in own_services.values() for stage in parse_stages(service)]
    assert sorted(run) == sorted(stage.name for stage in STAGES)


def test_every_command_exists_in_the_cli(own_services: dict[str, dict[str, Any]]) -> None:
    app = build_app()
    for service in own_services.values():
        function, bound, _ = app.parse_args(
            [interpolate_variables(token) for token in service["command"]],
            print_error=False,
            exit_on_error=False,
        )
        assert callable(function) and bound is not None


def test_addresses_name_services_and_their_ports(
    compose_config: dict[str, Any], own_services: dict[str, dict[str, Any]]
) -> None:
    services = compose_config["services"]
    for service in own_services.values():
        environment = {
            name: interpolate_variables(value) for name, value in service["environment"].items()
        }
        database = urlsplit(environment["ANABRANCH_DATABASE__URL"])
        assert (database.hostname, database.port) == ("postgres", 5432)
        assert database.hostname in services
        host, port = environment["ANABRANCH_KAFKA__BOOTSTRAP_SERVERS"].split(":")
        assert f"INTERNAL://:{port}" in services[host]["environment"]["KAFKA_LISTENERS"]
        assert (
            f"INTERNAL://{host}:{port}"
            in services[host]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
        )
        storage = urlsplit(environment["ANABRANCH_STORAGE__URL"])
        assert f"storage:{storage.netloc}" in services["bucket"]["command"]
        assert (
            dict(parse_qsl(storage.query))["endpoint"]
            == services["bucket"]["environment"]["RCLONE_CONFIG_STORAGE_ENDPOINT"]
        )


def test_published_ports_bind_to_localhost_only(compose_config: dict[str, Any]) -> None:
    published = [
        port for service in compose_config["services"].values() for port in service.get("ports", [])
    ]
    assert published and all(port.startswith("127.0.0.1:") for port in published)


def test_required_variables_are_in_the_example_file(compose_config: dict[str, Any]) -> None:
    example = {
        line.partition("=")[0]
        for line in (ROOT / ".env.example").read_text().splitlines()
        if "=" in line
    }
    wanted = {
        found[1] for found in VARIABLE_PATTERN.finditer((ROOT / "docker-compose.yml").read_text())
    }
    assert wanted == example


def test_awaited_services_have_health_checks(compose_config: dict[str, Any]) -> None:
    for name, service in compose_config["services"].items():
        for other, waiting in service.get("depends_on", {}).items():
            if waiting["condition"] == "service_healthy":
                assert "healthcheck" in compose_config["services"][other], (
                    f"{name} waits for {other}"
                )


def test_services_drop_unneeded_privileges(
    compose_config: dict[str, Any], own_services: dict[str, dict[str, Any]]
) -> None:
    for name, service in compose_config["services"].items():
        assert (service["cap_drop"], service["security_opt"]) == (
            ["ALL"],
            ["no-new-privileges:true"],
        ), name
        assert service["pids_limit"] and service["mem_limit"], name
    assert all(
        service["read_only"] and not service.get("cap_add") for service in own_services.values()
    )


def test_only_roles_service_connects_as_superuser(
    compose_config: dict[str, Any], own_services: dict[str, dict[str, Any]]
) -> None:
    signed_in = {
        name: urlsplit(
            interpolate_variables(service["environment"]["ANABRANCH_DATABASE__URL"])
        ).username
        for name, service in own_services.items()
    }
    assert signed_in["api"] == "anabranch_api" and signed_in["migrate"] == "anabranch_migrate"
    assert {name for name, user in signed_in.items() if user == "postgres"} == set()
    assert [
        name
        for name, service in compose_config["services"].items()
        if "PGUSER" in service.get("environment", {})
    ] == ["roles"]


def test_kafka_admits_only_known_principals(
    compose_config: dict[str, Any], own_services: dict[str, dict[str, Any]]
) -> None:
    kafka = compose_config["services"]["kafka"]["environment"]
    assert "PLAINTEXT" not in {
        part.partition(":")[2] for part in kafka["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(",")
    }
    assert kafka["KAFKA_ALLOW_EVERYONE_IF_NO_ACL_FOUND"] == "false" and kafka[
        "KAFKA_AUTHORIZER_CLASS_NAME"
    ].endswith("StandardAuthorizer")
    users = dict(
        re.findall(
            r'user_([\w-]+)="([^"]*)"',
            interpolate_variables(kafka["KAFKA_LISTENER_NAME_INTERNAL_PLAIN_SASL_JAAS_CONFIG"]),
        )
    )
    for service in own_services.values():
        environment = {
            name: interpolate_variables(value) for name, value in service["environment"].items()
        }
        assert (
            users[environment["ANABRANCH_KAFKA__SASL_USERNAME"]]
            == environment["ANABRANCH_KAFKA__SASL_PASSWORD"]
        )
    assert set(users) == {"anabranch-admin", "anabranch-api", "anabranch-worker", "producer"}


async def test_roles_script_is_idempotent(compose_config: dict[str, Any], database: str) -> None:
    script = interpolate_variables(compose_config["configs"]["roles"]["content"]).replace(
        "$$$$", "$$"
    )
    connection = await asyncpg.connect(database)
    try:
        for _ in range(2):
            await connection.execute(script)
        rows = await connection.fetch(
            "select rolname, rolsuper, rolcanlogin, pg_has_role(oid, 'anabranch_owner', 'set') as "
            "owns from pg_roles where rolname ~ '^anabranch_(m|w|a)'"
        )
    finally:
        await connection.close()
    assert {tuple(row) for row in rows} == {
        (f"anabranch_{name}", False, True, True) for name in ("migrate", "worker", "api")
    }
