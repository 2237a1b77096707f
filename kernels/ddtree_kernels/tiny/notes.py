"""Incident notes in free wording: the part of the training text in which the next words are likely, not certain.

Each word is drawn from half a dozen, and which of them is likely depends on the word before, so that a reader who knows
the text has a first guess that is right about half of the time and a good second and third one, as in real prose.
"""

from __future__ import annotations

import random
import zlib

WORDS = {
    "when": ("At noon", "Last night", "This morning", "On Monday", "After lunch", "At dawn"),
    "who": ("the operator", "a customer", "our team", "the night shift", "a developer", "support"),
    "saw": ("noticed", "reported", "found", "saw", "described", "measured"),
    "what": ("slow answers", "missing rows", "a full disk", "strange totals", "two timeouts", "a stuck queue"),
    "thought": ("blamed", "suspected", "traced it to", "thought of", "pointed at", "ruled out"),
    "why": ("a stale cache", "an old setting", "a bad cable", "a long query", "a wrong clock", "too many retries"),
    "link": ("so", "and then", "therefore", "after that", "in the end", "but"),
    "did": ("restarted", "moved", "cleared", "checked", "replaced", "rolled back"),
    "object": ("the worker", "the index", "the node", "the last change", "the write path", "the table"),
    "took": ("took", "lasted", "cost us", "went on for", "needed", "filled"),
    "time": ("five minutes", "an hour", "half a day", "ten minutes", "one evening", "two shifts"),
    "end": ("all is well", "we keep watching", "no data was lost", "a ticket is open", "we know more", "it may return"),
}  # fmt: skip
FORMS = (
    "when , who saw what on SERVICE .",
    "who thought why , link who did object .",
    "It took time , link end .",
    "who saw what , link who thought why .",
)


def likely(slot: str, before: str) -> tuple[list[str], list[float]]:
    """The slot's words, the likeliest behind `before` first, and their weights."""
    words = sorted(WORDS[slot], key=lambda word: zlib.crc32(f"{slot} {before} {word}".encode()))
    return words, [(rank + 1) ** -1.5 for rank in range(len(words))]


def sentence(rng: random.Random, form: str, service: str, before: str) -> tuple[str, str]:
    """One sentence and its last drawn word."""
    parts = []
    for part in form.split():
        if part in WORDS:
            words, weights = likely(part, before)
            before = rng.choices(words, weights)[0]
            part = before
        parts.append(service if part == "SERVICE" else part)
    text = " ".join(parts).replace(" ,", ",").replace(" .", ".")
    return text[0].upper() + text[1:], before


def wording(rng: random.Random, service: str, reader: str) -> str:
    """A note of three to five sentences; the first says what was seen, the last how it ended."""
    count, before = rng.randrange(3, 6), reader
    sentences = []
    for i in range(count):
        form = FORMS[0] if i == 0 else FORMS[2] if i == count - 1 else rng.choice((FORMS[1], FORMS[3]))
        text, before = sentence(rng, form, service, before)
        sentences.append(text)
    return " ".join(sentences)
