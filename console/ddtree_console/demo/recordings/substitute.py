"""The operator's arguments in the places where a recorded run repeats its own. Standard library only, Python 3.9."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

ALIASES = {"model": "model_path", "tp": "tp_size", "dp": "dp_size", "pp": "pp_size", "ep": "ep_size"}


def flags_of(argv: Sequence[str]) -> dict[str, Any]:
    """Server flags as a build-agnostic map: dash name -> text, list of texts, or True for a bare flag."""
    out: dict[str, Any] = {}
    name = ""
    for word in argv:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            out[name] = value if equals else True
        elif name:
            old = out[name]
            out[name] = word if old is True else [*(old if isinstance(old, list) else [old]), word]
    return out


def typed(value: Any, recorded: Any) -> Any:
    """A flag's text in the type that the recorded run has for it."""
    if isinstance(value, list):
        return [typed(v, recorded[0] if isinstance(recorded, list) and recorded else None) for v in value]
    if value is True or isinstance(recorded, bool):
        return value is True or str(value).lower() in ("true", "1")
    short = re.fullmatch(r"(\d+)([kKmM])", value)
    if short and not isinstance(recorded, str):
        return int(short.group(1)) * (1024 if short.group(2) in "kK" else 1024 * 1024)
    for kind in () if isinstance(recorded, str) else (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


class Substitution:
    """The operator's arguments in the places where the recorded run repeats its own."""

    def __init__(self, recording: Any, flags: Mapping[str, Any]) -> None:
        self.flags = {ALIASES.get(k.replace("-", "_"), k.replace("-", "_")): v for k, v in flags.items()}
        self.port = int(self.flags.get("port", 30000))
        self.host = str(self.flags.get("host", "127.0.0.1"))
        model = self.flags.get("model_path")
        self.model = model if isinstance(model, str) else None
        self.recorded_args = flags_of(recording.args)
        self.info: dict[str, Any] = (recording.responses.get("/server_info") or [0, {}])[1]
        self.unknown: list[str] = []

    def server_args(self, line: str) -> str:
        """The server_args= line with the operator's values; a field that this build lacks comes last."""
        for field, value in self.flags.items():
            place = re.search(rf"([(, ]{re.escape(field)}=)(.*?)(?=, [a-z_0-9]+=|\)$)", line)
            if place is None:
                line = line[:-1] + f", {field}={typed(value, None)!r})"
                continue
            old = place.group(2)
            like: Any = old in ("True", "False") if old in ("True", "False") else (old if old[:1] in "'\"" else None)
            line = line[: place.start(2)] + repr(typed(value, like)) + line[place.end(2) :]
        return line

    def line(self, raw: bytes) -> bytes:
        """A recorded line, with what this process was given."""
        if b"server_args=ServerArgs(" in raw:
            return (self.server_args(raw.decode().rstrip("\n")) + "\n").encode()
        if b"Uvicorn running on" in raw:
            return re.sub(rb"http://127\.0\.0\.1:\d+", f"http://{self.host}:{self.port}".encode(), raw)
        if b"[Errno 98]" in raw:
            return raw.replace(b"('127.0.0.1', 30000)", f"({self.host!r}, {self.port})".encode())
        if b"error: unrecognized arguments:" in raw and self.unknown:
            return raw[: raw.index(b"arguments:") + 11] + " ".join(self.unknown).encode() + b"\n"
        backend = self.recorded_args.get("attention-backend")
        if b"invalid choice: " in raw and isinstance(self.flags.get("attention_backend"), str):
            return raw.replace(repr(backend).encode(), repr(self.flags["attention_backend"]).encode(), 1)
        absent = self.recorded_args.get("model-path")
        if self.model and isinstance(absent, str) and absent.encode() in raw:
            return raw.replace(absent.encode(), self.model.encode())
        return raw

    def body(self, path: str, body: Any) -> Any:
        """A recorded answer, with what this process was given."""
        if path.endswith("server_info") and isinstance(body, dict):
            out = dict(body)
            for field, value in self.flags.items():
                out[field] = typed(value, body.get(field))
            return {**out, "host": self.host, "port": self.port}
        if path.endswith("model_info") and isinstance(body, dict) and self.model:
            tokenizer = self.flags.get("tokenizer_path", self.model)
            return {**body, "model_path": self.model, "tokenizer_path": tokenizer}
        if path == "/v1/models" and isinstance(body, dict) and self.model:
            name = self.flags.get("served_model_name", self.model)
            return {**body, "data": [{**entry, "id": name, "root": self.model} for entry in body["data"]]}
        return body
