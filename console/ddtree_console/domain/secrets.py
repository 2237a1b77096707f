"""Secrets masked in anything that is shown, exported or copied: command lines, log lines, server info.

Conservative in what it calls a secret (names, well-known shapes), complete in what it hides (the whole value, also
quoted, also cut off before its closing quote). Masking twice changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

MASK = "***"

# Any text with a secret in it holds one of these words in lower case; most log lines hold none. Plain `token` is in
# every `Decode batch` line, so it counts only as a name (`-token `, `_token`, `token":`, `token=`).
_HINTS = (
    "key",
    "secret",
    "passw",
    "passph",
    "credential",
    "bearer",
    "basic ",
    "authoriz",
    "_token",
    "hf_",
    "sk-",
    "ghp_",
    "gho_",
    "ghs_",
    "ghr_",
    "glpat",
)
_TOKEN_HINT = re.compile(r"-token[\"'\s=,\\]|token\\{0,8}[\"']|token\s*=")
_USERINFO_HINT = re.compile(r"://[^\s/]*@")

# repeats are bounded where they could be tried at every character of a megabyte line
_QUOTED = r'"(?:\\.|[^"\\])*(?:"|\\?\Z)' + r"|'(?:\\.|[^'\\])*(?:'|\\?\Z)"
_ESCAPED = r'\\{1,8}"(?:(?!\\{1,8}").)*(?:\\{1,8}"|\Z)' + r"|\\{1,8}'(?:(?!\\{1,8}').)*(?:\\{1,8}'|\Z)"
_WORD = rf"(?:{_ESCAPED}|{_QUOTED}|\\.|[^\s\"'\\])+"
_VALUE = rf"(?:{_ESCAPED}|{_QUOTED}|[^\s,;&)\]}}\"'\\]+)"

_FLAG_NAME = r"--?(?:[a-z0-9]{1,40}[-_]){0,12}(?:key|token|secret|password|passwd|passphrase|credentials?)"
_FLAG = re.compile(
    rf"(?is)((?<![\w-])(\\{{0,8}}[\"']){_FLAG_NAME}=)(?:(?!\2)(?:\\.|[^\\]))+"
    rf"|((?<![\w-]){_FLAG_NAME}\\{{0,8}}[\"']?\s*,\s*)({_VALUE})"
    rf"|((?<![\w-]){_FLAG_NAME}(?:=|\s+)(?!\s))({_WORD})"
)
_ENV_NAME = (
    r"(?:[A-Z0-9]{1,40}_){0,12}(?:[A-Z0-9]{0,40}TOKEN|[A-Z0-9]{0,40}KEY|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)"
    r"|[A-Z0-9_]{0,60}SECRET[A-Z0-9_]{0,60}"
)
_ENV = re.compile(
    rf"(?s)((?<![A-Za-z0-9_])([\"'])(?:{_ENV_NAME})=)(?:\\.|(?!\2)[^\\])+|((?<![A-Za-z0-9_])(?:{_ENV_NAME})=)({_WORD})"
)
_KEYED_NAME = (
    r"(?:[a-z0-9]{1,40}[-_]){0,12}(?:api[-_]?key|access[-_]?key|private[-_]?key|secret[-_]?key|secret|password|passwd|passphrase|"
    r"credentials?|(?:hf|hub|auth|access|bearer|refresh|api|session|github|use_auth)[-_]?token)"
)
_KEYED = re.compile(rf"(?is)((?<![\w-])(?:{_KEYED_NAME}|(?-i:{_ENV_NAME}))(?:\\{{0,8}}[\"'])?\s*[=:]\s*)({_VALUE})")
_TOKEN_QUOTED = re.compile(rf"(?is)((?<![\w-])token(?:\\{{0,8}}[\"'])?\s*[=:]\s*)({_ESCAPED}|{_QUOTED})")
_BEARER = re.compile(r"(?i)(\b(?:bearer|basic)\s+)([^\s\"'\\,]+)")
_AUTH = re.compile(r"(?i)(\bauthorization[\"']?\s*[:=]\s*[\"']?)(?!bearer\b|basic\b)([^\s\"'\\,]+)")
_SHAPE = re.compile(
    r"\bhf_[A-Za-z0-9]{16,}|\bsk-[A-Za-z0-9_-]{16,}|\bgh[posr]_[A-Za-z0-9]{16,}|\bglpat-[\w-]{16,}|\bAKIA[0-9A-Z]{16}\b"
)
_USERINFO = re.compile(r"(://[^\s/:@\"']*:)([^\s/@\"']+)(?=@)")
_PLAIN = frozenset({"None", "none", "null", "True", "False", "true", "false", "", MASK})


_WHOLE = re.compile(r"(?s)(\\{0,8}[\"']).*\1\Z")
_UNCLOSED = re.compile(r"(?s)(\\{0,8}[\"'])(?:\\.|(?!\1).)*\Z")


def _hidden(value: str) -> str:
    """The mask inside the value's own quotes, so that JSON stays JSON."""
    whole = _WHOLE.match(value)
    if whole is not None:
        quote = whole.group(1)
        return value if value[len(quote) : -len(quote)] in ("", MASK) else quote + MASK + quote
    unclosed = _UNCLOSED.match(value)
    if unclosed is not None:
        return unclosed.group(1) + MASK
    return value if value in _PLAIN else MASK


def _sub(match: re.Match[str]) -> str:
    return match.group(1) + _hidden(match.group(match.lastindex or 2))


def _flag_sub(match: re.Match[str]) -> str:
    if match.group(1):
        return match.group(1) + MASK
    head, value = match.group(3) or match.group(5), match.group(4) or match.group(6)
    # `--api-key --port`: no value was given; only after `=` may a value begin with dashes
    if value.lstrip("\\\"'").startswith("-") and not head.endswith("="):
        return match.group()
    return head + _hidden(value)


def _env_sub(match: re.Match[str]) -> str:
    if match.group(1):
        return match.group(1) + MASK
    return match.group(3) + _hidden(match.group(4))


def mask(text: str) -> str:
    """`text` with every secret replaced by ***; the same text where there is none."""
    low = text.lower()
    if not any(hint in low for hint in _HINTS) and not (
        ("token" in low and _TOKEN_HINT.search(low) is not None)
        or ("akia" in low or ("://" in low and _USERINFO_HINT.search(low) is not None))
    ):
        return text
    text = _FLAG.sub(_flag_sub, text)
    text = _ENV.sub(_env_sub, text)
    text = _KEYED.sub(_sub, text)
    text = _TOKEN_QUOTED.sub(_sub, text)
    text = _BEARER.sub(_sub, text)
    text = _AUTH.sub(_sub, text)
    text = _SHAPE.sub(MASK, text)
    return _USERINFO.sub(_sub, text)


_SECRET_FLAG = re.compile(rf"(?i){_FLAG_NAME}\Z")
_SECRET_NAME = re.compile(rf"(?i)(?:{_KEYED_NAME}|token|(?-i:{_ENV_NAME}))\Z")


def is_secret_name(name: str) -> bool:
    """Whether a flag, key or variable of that name holds a secret (`api-key`, `admin_api_key`, `HF_TOKEN`)."""
    return _SECRET_NAME.match(name.lstrip("-")) is not None or _SECRET_FLAG.match("--" + name.lstrip("-")) is not None


def mask_flags(argv: Sequence[str]) -> tuple[str, ...]:
    """An argument vector with the values of secret flags masked, whatever characters they hold."""
    out: list[str] = []
    hide = False
    for word in argv:
        if hide and not word.startswith("-"):
            out.append(MASK)
            hide = False
            continue
        name, equals, _ = word.partition("=")
        hide = not equals and _SECRET_FLAG.match(word) is not None
        out.append(f"{name}={MASK}" if equals and name.startswith("-") and _SECRET_FLAG.match(name) else mask(word))
    return tuple(out)


def mask_data(value: Any, name: str = "") -> Any:
    """JSON data (server info) with the values of secret keys masked and every string run through `mask`."""
    if isinstance(value, Mapping):
        return {k: mask_data(v, str(k)) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        words = [str(v) for v in value]
        if any(word.startswith("--") for word in words):
            return list(mask_flags(words))
        return [mask_data(v, name) for v in value]
    if isinstance(value, str):
        return MASK if value and is_secret_name(name) else mask(value)
    return value
