"""The terminal as a channel."""

import asyncio
import io

import pytest

from fledge.channels.terminal import HERE, TerminalChannel
from fledge.core.route import About, Message, check_address


def shown(text: str, about: About, left_out: frozenset[About] = frozenset()) -> tuple[str, str]:
    said, noticed = io.StringIO(), io.StringIO()
    channel = TerminalChannel(said, noticed, left_out)
    message = Message(id="x", channel=HERE.channel, to=HERE.to, about=about, session_key="s", text=text, posted_at=0.0)

    async def main() -> None:
        await channel.send(message)
        await channel.close()

    asyncio.run(main())
    return said.getvalue(), noticed.getvalue()


def test_replies_and_results_are_lines_of_one_stream_and_notices_of_the_other() -> None:
    assert shown("hello\nyou", "reply") == ("hello\nyou\n", "")
    assert shown("42", "result") == ("42\n", "")
    assert shown("it is stuck", "notice") == ("", "fledge: it is stuck\n")
    assert shown("may it?", "approval") == ("", "fledge: may it?\n")


def test_what_the_program_shows_by_itself_is_left_out() -> None:
    assert shown("may it?", "approval", frozenset({"approval"})) == ("", "")


@pytest.mark.parametrize("text", ["\x1b]0;title\x07hi", "a\x1b[2Jb", "a\x08b", "a\rb", "\x9b31m", "a\x00b"])
def test_no_words_can_speak_to_the_terminal_itself(text: str) -> None:
    said, _ = shown(text, "reply")
    assert all(c in "\n\t" or c.isprintable() for c in said)


def test_the_terminal_is_an_address_like_any_other() -> None:
    assert check_address(HERE) is HERE
