"""JSON schema of fleet and profile files, for editors: `python -m ddtree_console.config.schema_json FILE` writes it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pydantic.json_schema import models_json_schema

from ddtree_console.config.schema import FleetModel, ProfileModel


def text() -> str:
    """The schema; a file with `hosts` is a fleet, any other a profile."""
    _, defs = models_json_schema([(FleetModel, "validation"), (ProfileModel, "validation")])
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ddtree-console fleet or profile",
        "if": {"required": ["hosts"]},
        "then": {"$ref": "#/$defs/FleetModel"},
        "else": {"$ref": "#/$defs/ProfileModel"},
        **defs,
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text(), "utf-8")
    else:
        print(text(), end="")
