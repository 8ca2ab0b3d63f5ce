"""A terminal sends more than keys: reports have no effect, wherever they are cut, and Escape is a lone Escape."""

import pytest

from fledge.cli.term.sequences import ESC, GIVE_UP_S, TypedSequences
from fledge.cli.term.shown import Leave, StopWanted, TurnShown, WordsSent
from tests.cli.term.scene import Scene, play, scene
from tests.statements import proves

REPORTS = {
    "the window has the focus": "\x1b[I",
    "the window has lost the focus": "\x1b[O",
    "a key of the kitty protocol": "\x1b[97;5u",
    "a key of the kitty protocol is released": "\x1b[97;1:3u",
    "flags of the kitty protocol": "\x1b[?1u",
    "a key of modifyOtherKeys": "\x1b[27;5;97~",
    "device attributes": "\x1b[?62;22c",
    "secondary device attributes": "\x1b[>41;354;0c",
    "tertiary device attributes": "\x1bP!|7E565445\x1b\\",
    "the terminal is well": "\x1b[0n",
    "the place of the cursor": "\x1b[12;40R",
    "a click": "\x1b[<0;10;5M",
    "a click, the old way": "\x1b[M #!",
    "a mode": "\x1b[?2026;2$y",
    "a colour": "\x1b]11;rgb:0000/0000/0000\x07",
    "a colour, ended otherwise": "\x1b]11;rgb:0000/0000/0000\x1b\\",
    "the clipboard": "\x1b]52;c;aGVsbG8=\x1b\\",
    "the title": "\x1b]lfledge\x1b\\",
    "a capability": "\x1bP1+r544e=787465726d\x1b\\",
    "a setting": "\x1bP1$r0m\x1b\\",
    "the version": "\x1bP>|XTerm(388)\x1b\\",
    "graphics": "\x1b_Gi=31;OK\x1b\\",
    "a private message": "\x1b^status\x1b\\",
    "a string": "\x1bXstart\x1b\\",
    "the new size": "\x1b[48;24;80;0;0t",
    "the size in pixels": "\x1b[4;600;800t",
    "the theme": "\x1b[?997;1n",
    "the end of a paste that never began": "\x1b[201~",
    "a function key that is not known": "\x1b[99~",
    "a key of the number pad that is not known": "\x1bO5w",
    "a shifted key of rxvt": "\x1b[9$",
    "alt-up": "\x1b[1;3A",
    "alt-up, the other way": "\x1b\x1b[A",
    "alt-z": "\x1bz",
    "alt-ü": "\x1bü",
    "alt-[": "\x1b[",
    "alt-]": "\x1b]",
    "alt-o": "\x1bO",
}
"""What terminals send without a person who means something by it, and keys without a meaning."""


async def untouched(s: Scene, name: str) -> None:
    """Nothing was stopped, armed or typed; what is typed now is read."""
    await s.pause(1)
    assert s.wishes() == [], name
    assert s.glass.rows()[-1] == "›", name
    await s.type("words\r")
    assert s.wishes() == [WordsSent("words", "words")], name


@proves("4.tools.73", "In a chat a report of the terminal, or a key that is not known, stops nothing and types nothing")
@pytest.mark.parametrize("is_at_work", [True, False], ids=["in a turn", "between turns"])
@pytest.mark.parametrize("name", REPORTS)
def test_a_report_or_an_unknown_key_has_no_effect_wherever_it_is_cut(name: str, is_at_work: bool) -> None:
    sent = REPORTS[name]

    async def story() -> None:
        async with scene() as s:
            s.screen.turn(TurnShown("thinking", s.screen.now()) if is_at_work else None)
            await s.type(sent)
            await untouched(s, name)
            for cut in range(1, len(sent)):
                await s.type(sent[:cut], pause=0.01)
                await s.type(sent[cut:])
                await untouched(s, f"{name}, cut at {cut}")
            for sign in sent:
                await s.type(sign, pause=0.01)
            await untouched(s, f"{name}, sign by sign")
            for cut in range(3, len(sent)):
                await s.type(sent[:cut], pause=0.2)  # longer than Escape waits
                await s.type(sent[cut:])
                await untouched(s, f"{name}, late from {cut} on")
            await s.type(f"be{sent}hind\r")
            [words] = s.wishes()
            assert words in (WordsSent("behind", "behind"), WordsSent("beind", "beind"))  # alt-[ and what follows

    play(story)


def test_keys_keep_their_meaning_and_escape_is_a_lone_escape() -> None:
    async def story() -> None:
        async with scene() as s:
            await s.type("one two\x1bb\x1b[D-\x1b[F!\x1bOH>\r")  # alt-b, left, end, home
            assert s.wishes() == [WordsSent(">one- two!", ">one- two!")]
            await s.type("one\x1b\rtwo\r")
            assert s.wishes() == [WordsSent("one\ntwo", "one\ntwo")]
            await s.type("\x1b[200~pasted \x1b[I\x1b]x", pause=2)
            await s.type(" text\x1b[20", pause=2)
            await s.type("1~\r")
            assert s.wishes()[0] == WordsSent("pasted \x1b[I\x1b]x text", "pasted \x1b[I\x1b]x text")
            s.screen.turn(TurnShown("thinking", s.screen.now()))
            await s.type("\x1b")
            assert s.wishes() == [StopWanted()]
            await s.type("\x1b\x1b[I")
            assert s.wishes() == [StopWanted()]
            s.screen.turn(None)
            await s.type("\x1b\x1b")
            assert s.wishes() == [Leave()]

    play(story)


TOKENS = [
    ("a lone Escape", ["\x1b"], [ESC]),
    ("Escape twice", ["\x1b\x1b"], [ESC, ESC]),
    ("Escape, then a report", ["\x1b\x1b[I"], ["\x1b\x1b[I"]),
    ("Escape, then an Alt key", ["\x1b\x1bb"], [ESC, "\x1bb"]),
    ("Escape, then a paste", ["\x1b\x1b[200~a\x1b[201~"], [ESC, "\x1b[200~a\x1b[201~"]),
    ("a key of the Linux console", ["\x1b[[A"], ["\x1b[[A"]),
    ("text around a key", ["a\x1b[Ab"], ["a", "\x1b[A", "b"]),
    ("Ctrl-C in an answer that does not end", ["\x1b]11;rg", "\x03"], ["\x03"]),
    ("another sequence in it", ["\x1b]11;rg\x1b[A"], ["\x1b[A"]),
    ("Enter in a report that does not end", ["\x1b[12;", "\r"], ["\x1b[12;", "\r"]),
    ("Enter behind Alt-O", ["\x1bO\r"], ["\x1bO", "\r"]),
    ("words behind Alt-] and Alt-P", ["\x1b]words\x1bPwords"], ["\x1b]", "words", "\x1bP", "words"]),
    ("Alt-_ and a pause", ["\x1b_"], ["\x1b_"]),
    ("Alt-[ and a pause", ["\x1b["], []),
]


@pytest.mark.parametrize(("fed", "tokens"), [case[1:] for case in TOKENS], ids=[case[0] for case in TOKENS])
def test_what_a_terminal_sends_is_divided_into_whole_tokens(fed: list[str], tokens: list[str]) -> None:
    sequences = TypedSequences()
    found = [token for part in fed for token in sequences.feed(part, 1.0)]
    assert [*found, *sequences.flush()] == tokens


def test_what_is_typed_long_after_an_incomplete_report_is_text() -> None:
    sequences = TypedSequences()
    assert sequences.feed("\x1b]11;rgb", 1.0) == []
    assert sequences.flush() == []
    assert sequences.feed("words", 1.0 + GIVE_UP_S + 0.1) == ["words"]
