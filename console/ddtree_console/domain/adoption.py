"""A unit on a host as a profile, without loss: its text is kept, and only what is edited later is written anew."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ddtree_console.domain import launch as launches
from ddtree_console.domain.engines import sglang_launch
from ddtree_console.domain.spec import Profile
from ddtree_console.domain.unitfile import join_drop_ins

TQDM = {
    "TQDM_BAR_FORMAT": "{desc}: {percentage:3.0f}% {n_fmt}/{total_fmt} {elapsed}<{remaining}\n",
    "TQDM_MININTERVAL": "1",
}
"""One journal line a step of a bar: journald delivers a carriage-return bar only when it ends."""
SLOT_ENV = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", *TQDM)
DEFAULT_PORT = sglang_launch.DEFAULT_PORT


@dataclass(frozen=True)
class Adopted:
    """profile: what the unit starts, with its text in `verbatim`. port None: the command names none (the engine's
    own default holds). gpus: () where the unit does not say."""

    profile: Profile
    port: int | None
    gpus: tuple[int, ...]
    warnings: tuple[str, ...] = ()


def adopt(text: str, drop_ins: Iterable[tuple[str, str]] = (), name: str = "adopted") -> Adopted:
    """The unit (with its (path, text) drop-ins in systemd's order) as a profile. Never raises."""
    return read(join_drop_ins(text, drop_ins), name)


def read(joined: str, name: str = "adopted") -> Adopted:
    """The same for a text with its drop-ins already joined: what a profile's `verbatim` holds."""
    launch = launches.read(joined)
    line = launch.line
    env = {key: value for key, got in launch.env.items() for value in (got[-1].value,) if value is not None}
    gpus, warnings = _gpus(launch, env)
    if launch.problem:
        warnings = (*warnings, f"{launch.problem}: its flags cannot be edited, the unit is kept as it is")
    for index, literal in enumerate(launch.literal):
        if not literal:
            warnings = (*warnings, f"systemd expands {launch.argv[index]!r} in the command: shown as it stands")
    if "TQDM_BAR_FORMAT" not in launch.env and line.engine == "sglang":
        warnings = (*warnings, "without TQDM_BAR_FORMAT a graph capture shows no progress until it ends")
    generic = line.engine == "generic"
    starts_module = line.python is not None and line.head == 3 and line.argv[0] == line.python
    profile = Profile(
        name=name,
        engine=line.engine,
        python=line.python,
        user=launch.unit.get("Service", "User"),
        workdir=launch.unit.get("Service", "WorkingDirectory"),
        model=None if generic else line.model,
        flags={} if generic else dict(line.flags),
        args=() if generic else line.args,
        env={key: value for key, value in env.items() if not _of_slot(key, value, gpus)},
        command=line.argv if generic else () if starts_module else line.argv[: line.head],
        verbatim=joined,
    )
    return Adopted(profile, line.port, gpus, warnings)


def _of_slot(key: str, value: str, gpus: tuple[int, ...]) -> bool:
    """Whether the slot or the console writes this variable, not the profile."""
    if key == "CUDA_VISIBLE_DEVICES":
        return bool(gpus)
    return (key == "CUDA_DEVICE_ORDER" and value == "PCI_BUS_ID") or TQDM.get(key) == value


def _gpus(launch: launches.Launch, env: dict[str, str]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The GPUs that the unit takes, from its environment, else from --base-gpu-id and --tp-size."""
    visible = launch.env.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        value = visible[-1].value
        parts = (value or "").split(",")
        if all(part.strip().isascii() and part.strip().isdigit() and len(part) < 9 for part in parts):
            numbers = tuple(int(part) for part in parts)
            if len(set(numbers)) == len(numbers) and ",".join(map(str, numbers)) == value:
                order = env.get("CUDA_DEVICE_ORDER")
                if order == "PCI_BUS_ID":
                    return numbers, ()
                return numbers, ("CUDA_DEVICE_ORDER is not PCI_BUS_ID: CUDA may number the GPUs unlike NVML",)
        return (), (f"CUDA_VISIBLE_DEVICES={value} is no list of numbers: name the slot's GPUs yourself",)
    if launch.line.engine != "sglang":
        return (), ()
    base, size = (
        launch.line.flags.get("base-gpu-id", 0),
        launch.line.flags.get("tp-size", launch.line.flags.get("tp", 1)),
    )
    if type(base) is int and type(size) is int and base >= 0 and 0 < size <= 64:
        return tuple(range(base, base + size)), ()
    return (), ("the unit does not say which GPUs it takes: name the slot's GPUs yourself",)
