"""`anabranch config`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from anabranch.cli.api_calls import get, post
from anabranch.cli.options import LocalOptions, RemoteOptions
from anabranch.cli.output import Column, print_json, print_table

app = App(
    name="config", help="Show settings, their schema and profiles.", result_action="return_value"
)
LOCAL_DEFAULT, DEFAULT = LocalOptions(), RemoteOptions()


@app.command
def show(
    *, origin: Annotated[bool, Parameter(negative="")] = False, common: LocalOptions = LOCAL_DEFAULT
) -> int:
    """Show all settings in effect, without secrets.

    Parameters
    ----------
    origin
        Show the origin of each setting.
    """
    from anabranch.config.setting_values import list_setting_values

    rows = list_setting_values(common.load_settings())
    body = {
        "settings": {row.key: row.value for row in rows},
        **({"origins": {row.key: row.origin for row in rows}} if origin else {}),
    }
    columns = ("key", "value", "origin", "environment") if origin else ("key", "value")
    cells = [[getattr(row, column) for column in columns] for row in rows]
    return common.show(body, lambda: print_table(columns, cells))


@app.command
def schema(*, common: RemoteOptions = DEFAULT) -> int:
    """Print the JSON Schemas of settings and profiles; with --server, those of the server."""
    if common.server:
        common.print_result(get("/v1/config/schema", common))
        return 0
    from anabranch.config.profiles import build_config_schema

    print_json(build_config_schema())
    return 0


@app.command
def profiles(*, common: RemoteOptions = DEFAULT) -> int:
    """List profiles: built-in ones and those of the data folder, or those of --server."""
    if common.server:
        items = get("/v1/profiles", common)["items"]
    else:
        from anabranch.config.profiles import load_all_profiles

        catalog = load_all_profiles(common.load_settings())
        items = [profile.model_dump(mode="json") for profile in catalog.list_profiles()]
    columns: tuple[Column, ...] = (
        *("type", "name"),
        (
            "profiles",
            lambda item: ", ".join(f"{kind}={name}" for kind, name in item["profiles"].items()),
        ),
    )
    return common.show({"profiles": items}, lambda: common.print_items(items, columns))


@app.command
def reload(*, common: RemoteOptions = DEFAULT) -> int:
    """Let every API process read its profiles again. If a file is invalid, nothing changes."""
    reloaded = post("/v1/reload-config", {}, common)
    if common.is_json:
        common.print_result(reloaded)
    else:
        if reloaded["changed"]:
            print_table(("changed",), [(name,) for name in reloaded["changed"]])
        else:
            print("No profile changed.")
        print(f"version   {reloaded['sha256']}")
    return 0
