"""`raceline schema`: the JSON Schemas of what goes in and comes out."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import click
import msgspec

from raceline.present.errors import InputError

# published name -> type; the number changes when a key is renamed, removed or changes its meaning
SCHEMAS = {
    "raceline.scenario/1": "raceline.estimate.scenario:Scenario",
    "raceline.estimate/1": "raceline.estimate.result:Estimate",
    "raceline.describe/1": "raceline.models.describe:Description",
    "raceline.plan/1": "raceline.plan.result:Plan",
    "raceline.stack/1": "raceline.stack.check:Report",
    "raceline.solution/1": "raceline.stack.request:Solution",
    "raceline.accuracy/1": "raceline.accuracy.report:Report",
}


@click.command("schema")
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """Print the JSON Schema NAME (raceline.estimate/1, or estimate); list them without a NAME."""
    if name is None:
        sys.stdout.write("\n".join(SCHEMAS) + "\n")
        return
    sys.stdout.write(json.dumps(schema_of(name), indent=2, ensure_ascii=False) + "\n")


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema published under `name`; raises InputError where there is none."""
    full = next((known for known in SCHEMAS if name in (known, known[9:], known[9:].split("/")[0])), None)
    if full is None:
        raise InputError("cli.unknown_schema", field="NAME", given=name, known=", ".join(SCHEMAS))
    module, attribute = SCHEMAS[full].split(":")
    data = msgspec.json.schema(getattr(importlib.import_module(module), attribute), schema_hook=_open)
    told = data.get("$defs", {}).get("Message")
    if told:
        # messages are written with their English text beside them
        told["properties"]["text"] = {"type": "string"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": full, **data}


def _open(kind: type) -> dict[str, Any]:
    """What msgspec has no schema for may be anything."""
    return {}
