"""What may stand in fleet.yaml and in a profile: pydantic models, loaded only when a file is read."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
UNIT = r"^[A-Za-z0-9_][A-Za-z0-9_.:@-]*\.service$"
Name = Annotated[str, Field(pattern=NAME)]
Number = Annotated[int, Field(strict=True)] | Annotated[float, Field(strict=True, allow_inf_nan=False)]
Text = Annotated[str, Field(strict=True)]
Item = Text | Number
FlagValue = Annotated[bool, Field(strict=True)] | Item | list[Item]
Directive = Item | list[Item] | None


class Strict(BaseModel):
    """No unknown keys, no conversions."""

    model_config = ConfigDict(extra="forbid", strict=True)


class SecretModel(Strict):
    """A value that stays on the host, in /etc/ddtree-console/secrets.env."""

    secret: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="name of the entry")]


class SpeculativeModel(Strict):
    """What is wanted of speculation; the dialect turns it into this build's flags."""

    kind: Literal["none", "linear", "ddtree"] | None = None
    shadow: bool | None = Field(None, description="build and verify the tree, emit what linear verification accepts")
    budget: Annotated[int, Field(ge=1, le=65536)] | None = Field(None, description="tree nodes besides the root")
    draft: Text | None = Field(None, description="path or hub name of the draft model")


class ProfileModel(Strict):
    """A named launch. With `extends` it holds only what differs; `false` removes a flag of the parent."""

    extends: Name | None = Field(None, description="profile that this one is based on")
    engine: Literal["sglang", "wrapper", "generic"] | None = None
    dialect: Text | None = Field(None, description="stock-0.5.N, plugin, pr29907, pr31069, db-guo or rancy-wang")
    python: Text | None = Field(None, description="the service's interpreter")
    user: Text | None = Field(None, description="user that the service runs as")
    workdir: Text | None = None
    model: Text | None = Field(None, description="path or hub name of the model")
    flags: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")], FlagValue] | None = Field(
        None, description="launch flags without their dashes; true is a bare flag, false removes the parent's"
    )
    args: list[Item] | None = Field(None, description="arguments, verbatim, after the flags")
    env: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], Item | SecretModel | None] | None = None
    speculative: SpeculativeModel | None = None
    must: list[Text] | None = Field(None, description="flags whose drift fails the deployment")
    unit: dict[Annotated[str, Field(pattern=r"^([A-Za-z-]+\.)?[A-Za-z0-9-]+$")], Directive] | None = Field(
        None, description="further unit directives; null removes one of the console's own"
    )
    command: list[Text] | None = Field(None, description="generic engine: the whole command")
    verbatim: Text | None = Field(None, description="text of an adopted unit; written by `adopt`")


class ServiceModel(Strict):
    """A slot: unit, port and GPUs, and what runs in it."""

    unit: Annotated[str, Field(pattern=UNIT)]
    port: Annotated[int, Field(ge=1, le=65535)]
    gpus: list[Annotated[int, Field(ge=0, le=1023)]] = Field(default_factory=list, description="NVML indices")
    profile: Name
    fallback: Name | None = Field(None, description="profile that this slot goes back to")
    fallback_service: Name | None = Field(None, description="other service on this host to go back to")
    boot: bool = Field(True, description="enabled after the commit")
    hold_s: Annotated[Number, Field(description="seconds that it must hold after the first token")] | None = None
    deadline_s: Annotated[Number, Field(description="longest start in seconds")] | None = None


class HostModel(Strict):
    """A machine reached by SSH, or this one (`local: true`)."""

    address: Annotated[str, Field(min_length=1)] | None = None
    local: bool = False
    user: Text | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    jump: Text | None = Field(None, description="name of a host here, or user@host:port")
    identity: Text | None = Field(None, description="private key file")
    python: Text | None = Field(None, description="interpreter of the host code")
    known_hosts: Text | None = None
    services: dict[Name, ServiceModel] = Field(default_factory=dict)


class FleetModel(Strict):
    """fleet.yaml."""

    hosts: dict[Name, HostModel]
