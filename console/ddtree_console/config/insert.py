"""A new slot in a fleet file, every other byte kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ddtree_console.config import yamltree
from ddtree_console.config.files import dump, write_atomic
from ddtree_console.domain.spec import Service


def service_yaml(service: Service) -> dict[str, Any]:
    """A slot as it stands in fleet.yaml."""
    out: dict[str, Any] = {
        "unit": service.unit,
        "port": service.port,
        "gpus": list(service.gpus),
        "profile": service.profile,
    }
    out.update({"fallback": service.fallback} if service.fallback else {})
    out.update({"fallback_service": service.fallback_service} if service.fallback_service else {})
    return out | ({} if service.boot else {"boot": False})


def snippet(service: Service, indent: int = 0) -> str:
    """What to put below `services:` of the host, to print where the file cannot be changed by itself."""
    gpus = f"[{', '.join(map(str, service.gpus))}]"
    body = dump({service.name: service_yaml(service) | {"gpus": "@"}}).replace("gpus: '@'", f"gpus: {gpus}")
    return "".join(" " * indent + line for line in body.splitlines(keepends=True))


def add_service(path: Path, service: Service) -> str | None:
    """Puts the slot into the fleet file, every other byte kept; None when done, else the snippet to paste by hand.

    Only block style with `services:` already there (or a host without) is edited; the result must load as YAML with
    exactly this one slot more, else nothing is written.
    """
    text = path.read_text("utf-8")
    before = yamltree.parse(text, str(path))
    root = yaml.compose(text, Loader=yaml.SafeLoader) if not before.problems else None
    hosts = _child(root, "hosts")
    host = _child(hosts, service.host)
    services = _child(host, "services")
    for node, lead in ((services, ""), (host if services is None else None, "services:\n")):
        if not isinstance(node, yaml.MappingNode) or node.flow_style or not node.value:
            continue
        column = node.value[0][0].start_mark.column
        end = _end(node, text)
        extra = lead and " " * column + lead
        new = extra + snippet(service, column + (2 if lead else 0))
        joined = text[:end] + ("" if text[:end].endswith("\n") else "\n") + new + text[end:]
        after = yamltree.parse(joined, str(path))
        if after.problems or not _only_added(before.data, after.data, service):
            break
        write_atomic(path, joined)
        return None
    return snippet(service)


def _child(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for name, value in node.value if name.value == key), None)
    return None


def _end(node: yaml.MappingNode, text: str) -> int:
    """Behind the last line of the node's last value, before blank lines and comments that follow."""
    last: yaml.Node = node
    while isinstance(last, (yaml.MappingNode, yaml.SequenceNode)) and last.value and not last.flow_style:
        item = last.value[-1]
        last = item[1] if isinstance(item, tuple) else item
    found = text.find("\n", last.end_mark.index)
    return len(text) if found < 0 else found + 1


def _only_added(before: Any, after: Any, service: Service) -> bool:
    try:
        added = after["hosts"][service.host]["services"].pop(service.name)
        if not after["hosts"][service.host]["services"]:
            del after["hosts"][service.host]["services"]
        old = before["hosts"][service.host]
        if not old.get("services", True):
            del old["services"]
    except (KeyError, TypeError, AttributeError):
        return False
    return bool(after == before and added == service_yaml(service))
