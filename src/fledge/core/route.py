"""Addresses: where a conversation's words go, the message that is sent there, and when sending is given up.

An *address* is a channel, a receiver on it and perhaps a thread. An *origin* is an address as text, on a row or a turn:
where it came from, and so where its answer goes. A session's *route* is the address for words that answer no message.
This file knows no channel's protocol, no store and no clock.
"""

import re
from typing import Final, Literal

import msgspec

from fledge.core import heartbeat, policy
from fledge.core.freeze import REPLY_SKIP, classify_reply, without
from fledge.core.keys import is_child_key
from fledge.core.run import Instant
from fledge.core.value import Value
from fledge.errors import BadInput

TERMINAL: Final = "terminal"
"""The channel of the person at the terminal; it needs no settings."""
INTERNAL: Final = "internal"
"""The origin of what other sessions say: the answer goes back to them, never to a channel."""
APART: Final = "exchange:"
"""The prefix of the origin of an exchange between agents: such a row joins no turn and shares none."""
ANNOUNCED: Final = ":announce"
"""The suffix of that origin if the reply, once the exchange is over, is for the session's own people."""
REPLIED: Final = "reply:"
"""The prefix of the id of a message that is a reply; its session and the number of its entry follow."""
FORWARDED: Final = "forward:"
"""The prefix of the id of a message that forwards results of subagents unchanged; the same follows."""
TO_CHARS: Final = 256

RouteSource = Literal["bound", "hook", "fallback"]
"""How an address was found: the requester is bound to it, a hook named it, or it is where the task came from."""
About = Literal["reply", "result", "notice", "approval"]

_CHANNEL: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class Address(Value, array_like=True):
    """A receiver on a channel, perhaps in a thread."""

    channel: str
    to: str
    thread: str = ""

    @property
    def place(self) -> str:
        """The part of an address that a binding compares: the thread, else the receiver."""
        return f"thread:{self.thread}" if self.thread else f"to:{self.to}"

    @property
    def words(self) -> str:
        """The address for people."""
        return f"{self.to} on {self.channel}{f', thread {self.thread}' if self.thread else ''}"


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Address).decode


def check_channel(name: str, field: str = "channel") -> str:
    """The name as it is; refused unless it is a plain lower-case word that means nothing else here."""
    if not isinstance(name, str) or not _CHANNEL.fullmatch(name) or name == INTERNAL:
        raise BadInput(field, "must be 1 to 64 lower-case letters, digits, '-' or '_', and not 'internal'", name)
    return name


def check_address(address: Address) -> Address:
    """The address as it is. Refused: a bad channel name, no receiver, control characters, over 256 characters."""
    check_channel(address.channel)
    for field, text in (("to", address.to), ("thread", address.thread)):
        if len(text) > TO_CHARS or without(text, ("Cc", "Cs"), "") != text:
            raise BadInput(field, f"must have at most {TO_CHARS} characters, none of them a control character", text)
    if not address.to.strip():
        raise BadInput("to", "must not be empty")
    return address


def origin_of(address: Address) -> str:
    """The address as rows and turns carry it."""
    return _encode(address).decode()


def address_of(origin: str) -> Address | None:
    """The address an origin stands for; None if it is unknown, internal or apart."""
    return None if origin in ("", INTERNAL) or is_apart(origin) else _decode(origin)


def is_apart(origin: str) -> bool:
    """True of what agents say to each other, and of turns for it."""
    return origin.startswith(APART)


def joined(turn: str, rows: str, is_first: bool) -> str:
    """The origin of a turn once rows of this one have entered it: its first address counts. It is internal only as
    long as nothing but words of other sessions was read."""
    if address_of(turn) is not None or is_apart(turn):
        return turn
    if is_first or address_of(rows) is not None:
        return rows
    return turn if turn == rows else ""


def answer_to(origin: str, route: Address | None) -> Address | None:
    """Where a turn's reply goes: back to where its words came from, else to the session's route; None is nowhere."""
    if origin == INTERNAL or (is_apart(origin) and not origin.endswith(ANNOUNCED)):
        return None
    return address_of(origin) or route


def heartbeat_address(settings: heartbeat.HeartbeatSettings, usual: Address | None) -> Address | None:
    """Where the words of a heartbeat turn go, from the address where its conversation's words would go; None is
    nowhere."""
    if settings.target == "none":
        return None
    channel = settings.target
    if channel == "last":
        channel = "" if usual is None else usual.channel
    if settings.to and channel:
        return Address(channel, settings.to)
    return usual if usual is not None and usual.channel == channel else None


def is_same_place(one: Address | None, other: Address | None) -> bool:
    """True if messages to both arrive in the same thread, or at the same person."""
    return one is not None and other is not None and (one.channel, one.place) == (other.channel, other.place)


def is_worth_sending(text: str, ack_chars: int = heartbeat.OK_EXTRA_CHARS) -> bool:
    """True of words for people: not empty, and none of the tokens by which a model says nothing."""
    return classify_reply(text) == "text" and text.strip() != REPLY_SKIP and not heartbeat.is_silence(text, ack_chars)


class ChannelMessage(Value, kw_only=True, rename="camel", omit_defaults=True):
    """A message for a channel. The same message may come more than once; its id says so."""

    id: str
    channel: str
    to: str
    thread: str = ""
    about: About
    session_key: str
    """The conversation that speaks."""
    text: str
    child_session_key: str = ""
    """Of a result: the session of the child that it comes from."""
    status: str = ""
    """Of a result: how it came out, as the runtime has it."""
    route: RouteSource = "fallback"
    """How its address was found."""
    posted_at: Instant

    @property
    def address(self) -> Address:
        """Where it goes."""
        return Address(self.channel, self.to, self.thread)

    @property
    def is_entry(self) -> bool:
        """True if its words stand in the transcript of the conversation that speaks."""
        return self.about == "reply" or self.id.startswith(FORWARDED)

    @property
    def entry(self) -> int:
        """The number of the entry that has the words of this reply or forwarded result; 0 of any other message."""
        is_numbered = self.id.startswith((REPLIED, FORWARDED))
        return int(self.id.rpartition(":")[2]) if is_numbered else 0


def expiry_s(about: About) -> float:
    """How long after it was posted a message is still tried again."""
    return policy.expiry_s(about != "notice")


def next_try_at(
    retried: int, retries: int, at: Instant, expires_at: Instant | None = None, wait_s: float = 0.0
) -> Instant | None:
    """When to send again what did not arrive, after so many retries; None if it is given up.

    1, 2, 4, 8 … s later, or when the other side says (`wait_s`) if that is later still; never after it has expired.
    """
    again_at = at + max(policy.retry_s(retried + 1), wait_s)
    too_late = expires_at is not None and again_at > expires_at
    return None if retried >= retries or too_late else again_at


def is_of_another(message: ChannelMessage, session: str) -> bool:
    """True of words for people that another conversation than this one says; a subagent's belong to any."""
    is_words = message.about in ("reply", "result")
    return is_words and message.session_key != session and not is_child_key(message.session_key)
