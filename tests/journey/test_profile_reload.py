"""A reload through one API process reaches the others; an invalid file reaches none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from anabranch.composition.api import prepare_api
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from tests.support.api_client import api_client
from tests.support.api_world import run_system
from tests.support.eventually import eventually


@pytest.fixture
def profiles_dir(settings: Settings) -> Path:
    folder = settings.data_dir / "profiles"
    folder.mkdir(parents=True)
    return folder


async def fetch_profile(http: httpx2.AsyncClient, name: str) -> dict[str, Any]:
    response = await http.get(f"/v1/profiles/workflow/{name}")
    return dict(response.json()) if response.status_code == 200 else {}


async def test_reload_through_one_process_reaches_the_other(
    settings: Settings, database: str, overrides: Overrides, profiles_dir: Path
) -> None:
    async with (
        run_system(settings, database, overrides) as world,
        prepare_api(settings, database, overrides=overrides) as services,
        api_client(services) as other,
    ):
        (profiles_dir / "field.yaml").write_text("lexical: {k: 7}")
        reloaded = (await world.http.post("/v1/reload-config")).json()
        assert reloaded["changed"] == ["workflow/field"]
        found = await eventually(lambda: fetch_profile(other, "field"))
        assert found["settings"]["lexical"]["k"] == 7
        assert found == await fetch_profile(world.http, "field")

        (profiles_dir / "field.yaml").write_text("lexical: {k: 8}")
        (profiles_dir / "broken.yaml").write_text("lexical: {k: 0}")
        for http in (world.http, other):
            refused = await http.post("/v1/reload-config")
            assert refused.status_code == 422 and refused.json()["code"] == "INVALID_PROFILE"
            assert "broken.yaml" in refused.json()["detail"]

        (profiles_dir / "broken.yaml").unlink()
        # The other way round. Until here, nothing of the refused reload was in use.
        assert (await fetch_profile(other, "field"))["settings"]["lexical"]["k"] == 7
        again = (await other.post("/v1/reload-config")).json()
        assert again["changed"] == ["workflow/field"] and again["sha256"] != reloaded["sha256"]
        await eventually(
            lambda: fetch_profile(world.http, "field"),
            lambda profile: profile["settings"]["lexical"]["k"] == 8,
            stall_s=5,
        )
        same = (await world.http.post("/v1/reload-config")).json()
        assert same == {"changed": [], "sha256": again["sha256"]}
