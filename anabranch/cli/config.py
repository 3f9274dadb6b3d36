"""`anabranch config`."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import App, Parameter

from anabranch.cli.calls import got
from anabranch.cli.options import Local, Remote
from anabranch.cli.output import print_json, print_table

app = App(name="config", help="Settings: what holds, and what there is.", result_action="return_value")
HERE, DEFAULT = Local(), Remote()


@app.command
def show(*, origin: Annotated[bool, Parameter(negative="")] = False, common: Local = HERE) -> int:
    """Every setting that holds now; secrets are not shown.

    Parameters
    ----------
    origin
        With where each comes from.
    """
    rows = _rows(common)
    if common.json:
        common.show({"settings": {row["key"]: row["value"] for row in rows}, **({"origins": {row["key"]: row["origin"] for row in rows}} if origin else {})})
        return 0
    columns = ("key", "value", "origin", "environment") if origin else ("key", "value")
    print_table(columns, [[row[column] for column in columns] for row in rows])
    return 0


@app.command
def schema(*, common: Remote = DEFAULT) -> int:
    """JSON Schemas of the settings and of a profile; with --server, those of the server."""
    if common.server:
        common.show(got("/v1/config/schema", common))
        return 0
    from anabranch.settings_schema import config_schema

    print_json(config_schema())
    return 0


@app.command
def profiles(*, common: Remote = DEFAULT) -> int:
    """Named ways of answering: those that are shipped, and those in the data folder, or of --server."""
    found = got("/v1/profiles", common)["items"] if common.server else _profiles_here(common)
    if common.json:
        common.show({"profiles": found})
        return 0
    rows = [(profile["name"], profile["fusion"]["method"], profile["rerank"]["reranker"], profile["answer"]["threshold"]) for profile in found]
    print_table(("name", "fusion", "reranker", "threshold"), rows)
    return 0


def _profiles_here(common: Remote) -> list[dict[str, Any]]:
    from anabranch.composition.questions import profiles_of

    named = profiles_of(common.settings())
    return [named.get(name).model_dump(mode="json") for name in named.names]


def _rows(common: Local) -> list[dict[str, Any]]:
    from anabranch.settings_loading import environment_name, flattened, gather, known_keys, validated

    common.settings()
    origins = gather(data_dir=common.data, config=common.config, sets=common.set)
    values = dict(flattened(validated(origins).model_dump(mode="json")))
    told = {key: origin for origin, given in origins.items() for key, _ in flattened(given)}
    return [{"key": key, "value": values.get(key), "origin": told.get(key, "default"), "environment": environment_name(key)} for key in known_keys()]
