"""Two ways to show a conversation: `Terminal`, where answers and news appear above the line being typed, and `Plain`
for everything else. Words of models are hostile: control characters never reach the terminal.
"""

import asyncio
import io
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from fledge.commands import slash
from fledge.core.printable import printable

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.key_binding import KeyBindings

Interrupt = Callable[[], Awaitable[bool]]
"""What Ctrl-C does; True: leave."""
STYLES = {"you": "\x1b[1m", "note": "\x1b[2m", "ask": "\x1b[33m", "error": "\x1b[31m"}
PROMPT = "› "
LONGEST_FLOW = 1000
"""A line that is longer is shown in parts while it comes."""


def wants_colour(out: TextIO) -> bool:
    """True of a terminal whose user has not asked for none."""
    return out.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM", "dumb") != "dumb"


class Plain:
    """Lines in, lines out: for pipes, files, dumb terminals, and where prompt_toolkit is not installed."""

    def __init__(self, out: TextIO | None = None, typed: TextIO | None = None) -> None:
        self._out, self._in = out or sys.stdout, typed or sys.stdin
        self._colours = wants_colour(self._out)
        self._begun = False
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._reader: threading.Thread | None = None
        self.interrupt: Interrupt | None = None
        self.in_turns = not self._in.isatty()

    def say(self, text: str, style: str = "") -> None:
        """A line of its own."""
        self.rest()
        colour = STYLES.get(style, "") if self._colours else ""
        print(f"{colour}{printable(text)}" + ("\x1b[0m" if colour else ""), file=self._out, flush=True)

    def flow(self, text: str) -> None:
        """Written as it comes."""
        self._begun = True
        self._out.write(printable(text))
        self._out.flush()

    def rest(self) -> None:
        """What follows starts on a line of its own."""
        if self._begun:
            self._begun = False
            print(file=self._out, flush=True)

    def status(self, line: str) -> None:
        """There is no place for it: ends are told as they come, and /status shows the rest."""

    def offer(self, targets: Sequence[slash.Choice]) -> None:
        """Nothing is completed here."""

    async def read(self) -> str | None:
        """The next line; None at the end of the input, or when the user leaves by Ctrl-C."""
        if self._reader is None:
            loop = asyncio.get_running_loop()
            self._reader = threading.Thread(target=self._pump, args=(loop,), daemon=True)
            self._reader.start()
            if self._in.isatty():
                import signal

                loop.add_signal_handler(signal.SIGINT, lambda: asyncio.ensure_future(self._interrupted()))
        return await self._lines.get()

    def _pump(self, loop: asyncio.AbstractEventLoop) -> None:
        if isinstance(self._in, io.TextIOWrapper):
            self._in.reconfigure(errors="replace")  # what is no text is shown as such, and ends nothing
        for line in self._in:
            loop.call_soon_threadsafe(self._lines.put_nowait, line.rstrip("\n"))
        loop.call_soon_threadsafe(self._lines.put_nowait, None)

    async def _interrupted(self) -> None:
        if self.interrupt is not None and await self.interrupt():
            self._lines.put_nowait("/quit")


class Terminal:
    """A line editor at the bottom, everything else above it."""

    def __init__(self, history: Path) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory

        history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(history, os.O_CREAT | os.O_APPEND, 0o600))
        self._flowing = ""
        self._status = ""
        self._targets: Sequence[slash.Choice] = ()
        self.in_turns = False
        self._colours = wants_colour(sys.stdout)
        self.interrupt: Interrupt | None = None
        self._pending: set[asyncio.Task[None]] = set()
        self._session: PromptSession[str] = PromptSession(
            message=self._message,
            multiline=True,
            history=FileHistory(str(history)),
            completer=_completer(lambda: self._targets),
            complete_while_typing=True,
            key_bindings=self._keys(),
            bottom_toolbar=lambda: self._status or None,
            prompt_continuation="  ",
            enable_suspend=True,
        )

    def say(self, text: str, style: str = "") -> None:
        """Printed above the line being typed."""
        self.rest()
        self._print(text, style)

    def flow(self, text: str) -> None:
        """Whole lines are printed; the one that is still coming stands just above the line being typed."""
        *lines, coming = (self._flowing + printable(text)).split("\n")
        while len(coming) > LONGEST_FLOW:
            # It stands in the prompt until it is whole, and is drawn anew with each piece.
            cut = coming.rfind(" ", 1, LONGEST_FLOW) + 1 or LONGEST_FLOW
            lines.append(coming[:cut])
            coming = coming[cut:]
        self._flowing = coming
        if lines:
            self._print("\n".join(lines), "")
        self._session.app.invalidate()

    def rest(self) -> None:
        """The last line of the answer is printed too."""
        if self._flowing:
            line, self._flowing = self._flowing, ""
            self._print(line, "")

    def offer(self, targets: Sequence[slash.Choice]) -> None:
        """Completed from now on."""
        self._targets = targets

    def status(self, line: str) -> None:
        """Shown at the bottom."""
        if line != self._status:
            self._status = printable(line)
            self._session.app.invalidate()

    async def read(self) -> str | None:
        """What the user typed; None when they leave."""
        from prompt_toolkit.patch_stdout import patch_stdout

        try:
            with patch_stdout(raw=True):
                return await self._session.prompt_async()
        except EOFError:
            return None

    def _print(self, text: str, style: str) -> None:
        colour = STYLES.get(style, "") if self._colours else ""
        print(f"{colour}{printable(text)}" + ("\x1b[0m" if colour else ""), flush=True)

    def _message(self) -> str:
        return f"{self._flowing}\n{PROMPT}" if self._flowing else PROMPT

    def _keys(self) -> "KeyBindings":
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.complete_state and buffer.complete_state.current_completion:
                buffer.complete_state = None
            elif buffer.document.text_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            elif buffer.text.strip():
                buffer.validate_and_handle()

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        # While something is printed the terminal itself reads keys: a Ctrl-D comes out as this, a Ctrl-C is a signal.
        @keys.add("c-@")
        def _(event: KeyPressEvent) -> None:
            if not event.current_buffer.text:
                event.app.exit(exception=EOFError)

        @keys.add("<sigint>")
        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
                return
            app = event.app  # the one whose key this is, whoever prints at the moment

            async def act() -> None:
                if self.interrupt is not None and await self.interrupt() and app.future and not app.future.done():
                    app.exit(exception=EOFError)

            task = asyncio.ensure_future(act())
            self._pending.add(task)
            task.add_done_callback(self._pending.discard)

        return keys


def _completer(targets: Callable[[], Sequence[slash.Choice]]) -> "Completer":
    """Slash commands and the names they are about, as far as typed."""
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class Commands(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
            for word, meaning in slash.complete(document.text_before_cursor, targets()):
                typed = document.text_before_cursor.rpartition(" ")[2]
                yield Completion(word, start_position=-len(typed), display_meta=meaning)

    return Commands()


def open_screen(history: Path) -> Plain | Terminal:
    """The best this place allows."""
    if not sys.stdin.isatty() or not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return Plain()
    try:
        return Terminal(history)
    except ImportError:
        plain = Plain()
        plain.say("with `pip install 'fledge[chat]'` this line can be edited and completed", "note")
        return plain
