"""Lines that change: redrawn on a terminal, told once elsewhere."""

import io

from fledge.cli.live import LiveLines


def test_elsewhere_only_what_changed_is_written() -> None:
    out = io.StringIO()
    live = LiveLines(out, redraws=False)
    live.show(["a", "b"])
    live.show(["a", "b"])
    live.say("hello")
    live.show(["a", "c"])
    assert out.getvalue() == "a\nb\nhello\nc\n"


def test_on_a_terminal_the_block_is_drawn_over_and_what_is_said_stays_above() -> None:
    out = io.StringIO()
    live = LiveLines(out, redraws=True)
    live.show(["a", "b"])
    live.say("hello")
    live.show(["c"])
    over = "\x1b[2F\x1b[0J"
    assert out.getvalue() == f"a\nb\n{over}hello\na\nb\n{over}c\n"


def test_a_line_that_would_wrap_is_cut() -> None:
    out = io.StringIO()
    LiveLines(out, redraws=True).show(["x" * 5000])
    assert len(out.getvalue()) < 1000
    assert out.getvalue().endswith("…\n")
