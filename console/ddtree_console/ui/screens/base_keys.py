"""Every key of the console that is not bound to one screen, in the order in which the key line shows them."""

from __future__ import annotations

from textual.binding import Binding, BindingType

GLOBAL_KEYS: list[BindingType] = [
    Binding("d", "deploy", "deploy", id="deploy", tooltip="preview, deploy; while one runs: watch"),
    Binding("R", "rollback('way-back')", "roll back", id="rollback", tooltip="to the way back, after a countdown"),
    Binding("e", "edit", "edit", id="edit", tooltip="edit the launch flags"),
    Binding("plus", "extend", "extend", id="extend", tooltip="more time for the running deployment"),
    Binding("x", "why", "why", id="why", tooltip="why: finding, remedies, attempts"),
    Binding("a", "apply", "apply", id="apply", tooltip="edit by the first remedy; again: deploy"),
    Binding("l", "journal", "journal", id="journal", tooltip="the journal, full screen"),
    Binding("h", "history", "history", id="history", tooltip="releases and attempts"),
    Binding("c", "check", "check", id="check", tooltip="checks of the host and the service"),
    Binding("P", "rollback('known-good')", "previous", id="previous", tooltip="to the previous known good release"),
    Binding(
        "ctrl+r", "rollback('way-back')", "roll back", id="rollback_field", show=False, tooltip="R in a text field"
    ),
    Binding("y", "copy", "copy", id="copy", tooltip="copy with OSC 52, and into a file"),
    Binding("z", "zoom", "zoom", id="zoom", tooltip="one pane on the whole screen"),
    Binding("colon,ctrl+p", "command_palette", "palette", id="palette", tooltip="all commands", show=False),
    Binding("escape", "step_back", "back", id="back", show=False, tooltip="back to the screen before"),
    Binding("question_mark", "keys", "help", id="help", tooltip="all keys"),
    Binding("q", "leave", "quit", id="leave", tooltip="back, and from the fleet quit"),
]

OTHER_KEYS: tuple[tuple[str, str], ...] = (
    ("enter", "open the chosen row"),
    ("j k, arrows", "down, up"),
    ("g G", "top, bottom"),
    ("tab", "next pane"),
    ("/", "filter (fleet, journal)"),
    ("f", "follow the journal"),
    ("space", "pause the journal"),
    ("^s", "save a profile (launch editor)"),
    ("c", "check what is edited (launch editor)"),
    ("1 to 9", "choose a remedy (why)"),
    ("n", "next decisive line of the journal (why)"),
    ("y", "copy the chosen remedy's command (why)"),
    ("A", "accept drift until it changes (host)"),
    ("^r", "roll back, in a text field"),
    (": ^p", "command palette"),
    ("esc", "back, out of a field or countdown"),
)

CHANGES_A_HOST = frozenset(
    {"deploy", "deploy_edited", "apply_deploy", "send_deploy", "take_over", "rollback", "extend", "accept_drift"}
)
"""Actions that --read-only disables."""

NEED_TARGET = frozenset(
    {"deploy", "rollback", "edit", "extend", "why", "apply", "journal", "history", "check"},
)
"""Actions that need a chosen service."""
