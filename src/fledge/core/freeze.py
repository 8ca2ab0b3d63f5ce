"""The result of an attempt: its words, frozen and bounded, and its figures in one line.

The tokens by which a model says nothing live here, and nowhere else. Text is taken as hostile: it may be huge, hold
control characters or be no valid Unicode; all text that leaves this file can be written as UTF-8. How a result reads
is in `announce`.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable

from fledge.core.events import Said
from fledge.core.figures import count_text, duration, money
from fledge.core.value import Value
from fledge.errors import BadInput

NO_REPLY = "NO_REPLY"
"""A whole reply of this says nothing, on purpose."""
ANNOUNCE_SKIP = "ANNOUNCE_SKIP"
"""A child whose whole reply is this asks that its result not be announced."""
REPLY_SKIP = "REPLY_SKIP"
"""A whole reply of this ends a conversation between two agents."""
HEARTBEAT_OK = "HEARTBEAT_OK"
"""The answer to a heartbeat that nothing needs attention."""

_SAID: dict[str, Said] = {"": "empty", NO_REPLY: "silent", ANNOUNCE_SKIP: "skip"}

FROZEN_BYTES = 100 * 1024
"""The most a frozen result takes, its notice included."""
TOOL_OUTPUT_CHARS = 2000
"""A tool output longer than this is frozen as its two ends."""
FRAGMENTS = 3
FRAGMENT_CHARS = 400
SUMMARY_CHARS = 500
"""The most of a `SUMMARY:` line."""
TAIL_CHARS = 200
"""How much of its end stands for a text without a `SUMMARY:` line."""

_SUMMARY = re.compile(
    r"\s*(?:(?P<bold>\*\*|__)summary(?:(?P<shut>:(?P=bold)|(?P=bold):)|:)|summary:)(?P<words>.*)", re.IGNORECASE
)
_JOINERS = "\u200c\u200d"


# ---- words -----------------------------------------------------------------------------------------------------------


def to_valid_utf8(text: str) -> str:
    """The same text, with `?` for every lone surrogate: it can be written as UTF-8 and stored as JSON."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")


def one_line(text: str, limit: int) -> str:
    """The text on one line: white space flattened, control and invisible format characters gone, at most `limit`
    characters, the last of them `…` where something was cut."""
    flat = _flat(text)
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def classify_reply(text: str) -> Said:
    """The meaning of a whole reply. A token counts only if it is the whole reply, in capitals, space around it
    apart."""
    return _SAID.get(text.strip(), "text")


def freeze(assistant_text: str | None, tool_output: str | None) -> str:
    """The result to keep: the last assistant text, else the last tool output summarised, else empty.

    At most `FROZEN_BYTES` of UTF-8; a longer one loses its end to a notice with its true size, and keeps its `SUMMARY:`
    line behind it. One that fits is untouched, silence tokens included.
    """
    if assistant_text and assistant_text.strip():
        return capped(assistant_text, FROZEN_BYTES, lambda size_kb: _truncated(size_kb) + _summary_line(assistant_text))
    if tool_output and tool_output.strip():
        return capped(f"(no final text) Last tool output:\n{_ends(tool_output.strip())}", FROZEN_BYTES, _truncated)
    return ""


def partial(tool_calls: int, fragments: Iterable[str]) -> str:
    """The note on the work of a stopped run: its tool calls, and its last words, oldest first.

    Bounded whatever the fragments are; empty and silent ones are no words. Refused: a negative count.
    """
    if tool_calls < 0:
        raise BadInput("tool_calls", "must be 0 or more", tool_calls)
    words = [one_line(fragment, FRAGMENT_CHARS) for fragment in fragments if classify_reply(fragment) == "text"]
    note = f"(partial progress: {tool_calls} tool call{'' if tool_calls == 1 else 's'}, no final answer)"
    return "\n".join([note, *(f"- {line}" for line in words[-FRAGMENTS:])])


def summary(text: str) -> str:
    """One line for the whole text: what follows its last `SUMMARY:` at the start of a line, else its last
    `TAIL_CHARS` characters. A marker with nothing behind it does not count. Empty only if the text is."""
    return _marked(text) or _flat(text)[-TAIL_CHARS:].lstrip()


def _marked(text: str) -> str:
    """What follows the last `SUMMARY:` at the start of a line; empty if nothing does."""
    for line in reversed(text.splitlines()) if "summary" in text.casefold() else ():
        if (found := _SUMMARY.fullmatch(line)) and (words := _unwrapped(found)):
            return one_line(words, SUMMARY_CHARS)
    return ""


def _summary_line(text: str) -> str:
    words = _marked(text)
    return f"\nSUMMARY: {words}" if words else ""


def without(text: str, categories: tuple[str, ...], keep: str) -> str:
    """The text without characters of these Unicode categories, except those to keep."""
    # A text has few different characters, so looking at each of those once is quick however long it is.
    gone = [ord(c) for c in set(text) if c not in keep and unicodedata.category(c) in categories]
    return text.translate(dict.fromkeys(gone)) if gone else text


def _flat(text: str) -> str:
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    # Joiners stay: they make letters and emoji, and cannot reorder or hide a line as the other format characters can.
    spaced = " ".join(to_valid_utf8(text).split())
    return " ".join(without(spaced, ("Cc", "Cf"), _JOINERS).split())


def _unwrapped(found: re.Match[str]) -> str:
    words = found["words"].strip()
    # **SUMMARY: all of it is bold**
    return words.removesuffix(found["bold"]).strip() if found["bold"] and not found["shut"] else words


def capped(text: str, most: int, note: Callable[[int], str]) -> str:
    """The text in at most so many bytes of UTF-8: whole, or its beginning and the note that is made of its size in
    KB."""
    if len(text) <= most and text.isascii():
        return text
    whole = text.encode("utf-8", "replace")
    if len(whole) <= most:
        return whole.decode()
    end = note(math.ceil(len(whole) / 1024))
    return whole[: most - len(end.encode())].decode("utf-8", "ignore") + end


def _truncated(size_kb: int) -> str:
    return f"\n\n[truncated: frozen completion output exceeded {FROZEN_BYTES // 1024}KB ({size_kb}KB)]"


def _ends(text: str) -> str:
    left_out = len(text) - TOOL_OUTPUT_CHARS
    if left_out <= 0:
        return text
    half = TOOL_OUTPUT_CHARS // 2
    return f"{text[:half]}\n[… {left_out} characters left out …]\n{text[-half:]}"


# ---- figures ---------------------------------------------------------------------------------------------------------


class Stats(Value, rename="camel"):
    """The figures of an attempt, as measured; None where nothing was measured."""

    runtime_s: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    tokens_cached: int | None = None
    """Input that the provider's cache served or stored; it is not among `tokens_in`."""


def stats_line(stats: Stats) -> str:
    """The figures for people: `runtime 2m34s • tokens 15.2k (in 12.1k / out 3.1k) • est $0.42`.

    Unknown figures read `n/a`. A cost that is not known is left out, and so are cached tokens where there are none.
    """
    parts = [f"runtime {duration(stats.runtime_s)}", f"tokens {_tokens(stats)}"]
    if stats.cost_usd is not None and math.isfinite(stats.cost_usd):
        parts.append(f"est {money(stats.cost_usd)}")
    return " • ".join(parts)


def _tokens(stats: Stats) -> str:
    tokens_in, tokens_out, cached = stats.tokens_in, stats.tokens_out, stats.tokens_cached or 0
    if tokens_in is None and tokens_out is None:
        return "n/a"
    total = None if tokens_in is None or tokens_out is None else tokens_in + tokens_out + cached
    kept = f" / cached {count_text(cached)}" if cached else ""
    return f"{count_text(total)} (in {count_text(tokens_in)} / out {count_text(tokens_out)}{kept})"
