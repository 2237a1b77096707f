"""SGLang as an Engine: launch, log and endpoints live in modules of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddtree_console.domain.engines import generic, log_common, sglang_http, sglang_launch, wrapper
from ddtree_console.domain.engines.base import Command, Figures, FlagHelp, LogReader, Request
from ddtree_console.domain.engines.sglang_log import SglangReader
from ddtree_console.domain.spec import Profile, Service


def _kept(profile: Profile, service: Service) -> Command:
    """The launch of a profile that keeps an adopted unit's text: read from the unit that it renders to."""
    from ddtree_console.domain.render import render_unit

    unit = render_unit(profile, service)
    return Command(unit.argv, {}, unit.warnings)


class SglangEngine:
    """Stock SGLang, its forks, and SGLang with the plug-in."""

    name = "sglang"

    def command(self, profile: Profile, service: Service) -> Command:
        """The launch of this profile in this slot; DialectError when the intent has no spelling."""
        return sglang_launch.command(profile, service) if profile.verbatim is None else _kept(profile, service)

    def editor_flags(self) -> Sequence[FlagHelp]:
        """Flags offered in the launch editor, in order."""
        return sglang_launch.FLAGS

    def reader(self) -> LogReader:
        """A fresh log reader."""
        return SglangReader()

    def info_requests(self) -> Sequence[Request]:
        """Model info, best first."""
        return sglang_http.info_requests()

    def server_info_requests(self) -> Sequence[Request]:
        """Effective flags, best first."""
        return sglang_http.server_info_requests()

    def token_requests(self, info: Mapping[str, Any]) -> Sequence[Request]:
        """One real token, best first."""
        return sglang_http.token_requests(info)

    def token_made(self, body: Any) -> bool:
        """Whether that answer holds at least one generated token."""
        return sglang_http.token_made(body)

    def effective(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """flag name with dashes -> effective value."""
        return sglang_http.effective(info)

    def figures(self, metrics_text: str) -> Figures:
        """Figures in a /metrics answer."""
        return sglang_http.figures(metrics_text)

    def figures_of_info(self, info: Mapping[str, Any]) -> Figures:
        """Figures in a server-info answer."""
        return sglang_http.figures_of_info(info)


class WrapperEngine(SglangEngine):
    """The wrapper server speaks SGLang's log lines and endpoints; only its launch differs."""

    name = "wrapper"

    def command(self, profile: Profile, service: Service) -> Command:
        """The wrapper's launch in this slot."""
        return wrapper.command(profile, service) if profile.verbatim is None else _kept(profile, service)

    def editor_flags(self) -> Sequence[FlagHelp]:
        """Flags offered in the launch editor."""
        return wrapper.FLAGS


class GenericEngine(SglangEngine):
    """Any server with OpenAI's endpoints: SGLang's requests fall back to /v1/models and /v1/completions."""

    name = "generic"

    def command(self, profile: Profile, service: Service) -> Command:
        """The command as given, with the slot's port."""
        return generic.command(profile, service) if profile.verbatim is None else _kept(profile, service)

    def editor_flags(self) -> Sequence[FlagHelp]:
        """None: nothing is known of its flags."""
        return generic.FLAGS

    def reader(self) -> LogReader:
        """Exceptions and exits only: the phases of SGLang would be false here."""
        return log_common.GenericReader()
