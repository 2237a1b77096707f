"""Values that quoting must carry through systemd, for tests here and on real hosts."""

from __future__ import annotations


def tricky_values() -> list[str]:
    """Each must arrive in a process as it stands, as an argument and as a variable."""
    return [
        "",
        "plain",
        "two words",
        " leading and trailing ",
        "tab\there",
        "100%",
        "%i and %% and %n",
        "$HOME",
        "${HOME}",
        "a$b$$c",
        "$",
        "back\\slash",
        "ends in \\",
        "\\n is no newline",
        'say "hi"',
        "it's",
        '"',
        "'",
        ";",
        "a;b ; c",
        "\\;",
        "#no comment",
        "key=value",
        "-leading-dash",
        '{"method":"dflash","n":[1,2]}',
        "Grüße, 木, 🙂",
        "\u202eright to left",
        "carriage\rreturn",
        "esc \x1b[31m and bell \x07 and del \x7f",
        "@-:+!|",
        "*?[a-z]~",
        "|&><()`",
    ]
