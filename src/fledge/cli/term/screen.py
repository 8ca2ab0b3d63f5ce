"""The screen in a real terminal: prompt_toolkit reads keys and edits the input, everything else is drawn by `picture`.

Nothing here decides what is shown or what a key means; that is in the pure files beside it. There is no alternate
screen: finished rows are written once into the terminal's own scrollback, and the live region is redrawn below them.
Pictures go through a writer thread; while one is being written no other is made.
"""

import asyncio
import base64
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace
from prompt_toolkit.application import Application, get_app, in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.history import History
from prompt_toolkit.input import Input
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent, merge_key_bindings
from prompt_toolkit.key_binding.defaults import load_key_bindings
from prompt_toolkit.key_binding.key_bindings import KeyBindingsBase
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import BufferControl, Dimension, HSplit, Layout, Window
from prompt_toolkit.layout.mouse_handlers import MouseHandlers
from prompt_toolkit.layout.screen import Char, WritePosition
from prompt_toolkit.layout.screen import Screen as Cells
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.search import stop_search
from prompt_toolkit.styles import DummyStyle
from prompt_toolkit.widgets import SearchToolbar

from fledge.cli.term import keys, region
from fledge.cli.term.cells import Theme, columns, columns_of_row, fit
from fledge.cli.term.here import CommandRan, best_matches, file_word, files_below, run_here, with_output
from fledge.cli.term.picture import Painter, ScreenCursor
from fledge.cli.term.scrollback import Scrollback
from fledge.cli.term.sequences import ESC, PASTE_BEGINS, PASTE_ENDS, TypedSequences
from fledge.cli.term.shown import (
    CallEnded,
    CallQuestion,
    ChatItem,
    Leave,
    OpenQuestion,
    OpenQuestions,
    OutputItem,
    PersonVerdict,
    PlanQuestion,
    QuestionAnswered,
    Screen,
    SpokenItem,
    StopWanted,
    Wish,
    WordsSent,
)
from fledge.cli.term.writer import Writer, WriterFile, draw_frames

INPUT_ROWS: Final = 8
ESCAPE_S: Final = 0.05
"""After this time an Esc is a key of its own, and not the beginning of another."""
FILES_S: Final = 5.0
"""How long a list of files is used for completion."""
CLIPBOARD_CHARS: Final = 100_000
"""The most that terminals take for the clipboard, in base64."""
_CLEAR_ALL: Final = "\x1b[H\x1b[2J\x1b[3J"

CompleteWord = Callable[[str], Iterable[tuple[str, str]]]
"""Completions of a slash command: the choices for the last word, each with its meaning."""
InputRows = tuple[list[str], ScreenCursor]
"""The rows of the input, and the place of the cursor in them."""


class TerminalScreen(Screen):
    """Shows a conversation in a terminal and reads the person's wishes. `opening` opens it."""

    def __init__(
        self,
        writer: Writer,
        size: Callable[[], Size],
        *,
        theme: Theme,
        folds: bool,
        history: History,
        complete: CompleteWord,
        typed: Input | None = None,
        folder: Path | None = None,
    ) -> None:
        super().__init__()
        self._label = ""
        self._writer, self._size, self._theme = writer, size, theme
        self._scrollback = Scrollback(theme)
        self._painter = Painter(folds=folds)
        self._shows_all = self._shows_output = False
        self._last_output: OutputItem | None = None
        self._ran: list[CommandRan] = []
        self._pastes = keys.Pastes()
        self._questions = _Questions()
        self._key_at = self._key_before_at = -keys.QUIET_S
        self._armed_until = 0.0
        self._changed = asyncio.Event()
        self._input = Buffer(
            multiline=True,
            history=history,
            completer=_Completer(complete, folder or Path.cwd(), self.now),
            complete_while_typing=True,
            tempfile_suffix=".md",
        )
        output = Vt100_Output(
            WriterFile(writer.put),
            size,
            term=os.environ.get("TERM"),
            enable_cpr=False,
            default_color_depth=ColorDepth.DEPTH_1_BIT,
        )
        self._app = self._application(output, typed)

    # ---- shown by the chat

    def words(self, text: str) -> None:
        """A piece of an answer, as it comes."""
        self._scrollback.words(text, self._width)
        self._change()

    def complete(self) -> None:
        """The answer is complete."""
        self._scrollback.complete(self._width)
        self._change()

    def say(self, item: ChatItem) -> None:
        """An item that stays. The output of a tool that was not asked for is shown only while outputs are wanted
        (Ctrl-O)."""
        if isinstance(item, OutputItem) and not item.is_asked_for:
            self._last_output = item
            if not self._shows_output:
                return
        if isinstance(item, CallEnded) and self._shows_output:
            item = replace(item, text="")
        self._scrollback.say(item, self._width)
        self._change()

    def ask(self, asked: OpenQuestions) -> None:
        """All open questions, the oldest first. A question that is too long for the region is shown in the
        scrollback."""
        self._asked = asked
        self._say_long_questions()
        if self._questions.reason_for and not any(one.id == self._questions.reason_for[0] for one in asked):
            self._leave_reason(keeps_words=True)
        self._change()

    def put_back(self, text: str) -> None:
        """Words that were not read go back into the input, before what is typed there; long ones are folded."""
        text, typed = self._pastes.fold(text), self._input.text
        self._input.document = Document(f"{text}\n{typed}" if typed else text)
        self._change()

    def talks_to(self, label: str) -> None:
        """The conversation or subagent that gets the words, shown before the input; empty: the main conversation."""
        self._label = f"{fit(label, region.LABEL_COLUMNS)} " if label else ""
        self._change()

    def clear(self) -> None:
        """Empty the terminal and its scrollback. Long questions that are open stand there again."""
        self._scrollback.take()
        self._scrollback.shown.clear()
        self._painter.forget()
        self._writer.put(_CLEAR_ALL)
        self._change()

    def copy(self, text: str) -> bool:
        """Ask the terminal to put this into the clipboard (OSC 52). False of a text that is too long to ask for."""
        packed = base64.b64encode(text.encode("utf-8", "replace")).decode()
        if len(packed) > CLIPBOARD_CHARS:
            return False
        self._writer.put(f"\x1b]52;c;{packed}\x07")
        return True

    # ---- life

    async def run(self) -> None:
        """Show and read until `close`."""
        frames = asyncio.ensure_future(draw_frames(self._changed, self._moves_in, self.draw))
        try:
            await self._app.run_async(set_exception_handler=False)
        except EOFError:
            pass  # the terminal is gone
        finally:
            frames.cancel()
            self._wishes.put_nowait(Leave())

    def close(self) -> None:
        """Let `run` end. It takes the region away; the conversation stays in the scrollback."""
        if self._app.is_running:
            self._app.exit()

    def draw(self) -> None:
        """Draw a picture soon."""
        self._app.invalidate()

    def written(self) -> None:
        """The terminal has taken everything: the person can read the last picture, and later changes can be drawn."""
        self._questions.seen(self.now())
        if self._changed.is_set():
            self.draw()

    # ---- pictures

    @property
    def _width(self) -> int:
        """Columns that are used: one less than there are, so that no terminal folds a full row."""
        return max(1, self._size().columns - 1)

    def _change(self) -> None:
        self._changed.set()

    @property
    def _is_armed(self) -> bool:
        """True while another Esc or Ctrl-C leaves."""
        return self.now() < self._armed_until

    def _moves_in(self) -> float | None:
        """The seconds until the region looks different by itself; None: it does not."""
        if self._turn is not None:
            return 1 / region.SPINS_PER_S
        if self._asked or self._is_armed:
            return 0.25
        return 1.0 if self._children else None

    def _open_questions(self) -> OpenQuestions:
        """The questions that can be shown: a long one only once its whole text stands in the scrollback."""
        return tuple(
            one
            for one in self._asked
            if one.id not in self._questions.answered and (one.id in self._scrollback.shown or not self._is_long(one))
        )

    def _say_long_questions(self) -> None:
        """Show each open question that is too long for the region, at its present width, in the scrollback, once."""
        for question in self._asked:
            if question.id not in self._scrollback.shown and self._is_long(question):
                self._scrollback.say(question, self._width)

    def _is_long(self, question: OpenQuestion) -> bool:
        return isinstance(question, PlanQuestion) or region.is_long(question, self._width)

    def _view(self) -> region.View:
        questions = self._open_questions()
        waiting = tuple(item.text for item in self._scrollback.waiting if isinstance(item, SpokenItem))
        notes = [ran.note for ran in self._ran]
        notes += ["again leaves"] if self._is_armed else []
        notes += ["tool output is shown · ctrl-o hides it"] if self._shows_output else []
        return region.View(
            tail=tuple(self._scrollback.tail(self._width)),
            turn=self._turn,
            children=self._children,
            shows_all=self._shows_all,
            asked=questions,
            answering="reason" if self._questions.reason_for else "keys" if self._may_answer(self._key_at) else "waits",
            queued=(*waiting, *self._queued),
            notes=tuple(notes),
        )

    def draw_region(self, typed: list[str], cursor: ScreenCursor) -> str:
        """The text that draws a picture around these rows of the input; empty if there is nothing to draw."""
        self._changed.clear()
        self._say_long_questions()
        size, view, width = self._size(), self._view(), self._width
        menu = self._menu(width)
        room = max(0, size.rows - 1 - len(typed) - len(menu))
        rows = region.region_rows(view, width, room, self.now(), self._theme)
        is_parked = self._turn is not None and not self._input.text and self.now() - self._key_at >= keys.QUIET_S
        typed = list(typed)
        if is_parked:
            typed[0] = f"{typed[0]}\x1b[7m \x1b[0m"  # where the cursor would be
        elif hint := region.input_hint(view, bool(self._input.text)):
            spare = width - columns_of_row(typed[-1]) - columns(hint)
            typed[-1] += " " * spare + self._theme.paint(hint, "d") if spare > 1 else ""
        place = None if is_parked else ScreenCursor(cursor.x, cursor.y + len(rows))
        data = self._painter.paint(self._scrollback.take(), [*rows, *typed, *menu], place, size.columns)
        self._questions.drawn(view.asked[0].id if view.asked else "")
        if not data:
            self._questions.seen(self.now())
        return data

    def _menu(self, width: int) -> list[str]:
        state = self._input.complete_state
        if state is None:
            return []
        choices = [(choice.display_text, choice.display_meta_text) for choice in state.completions]
        return region.menu_rows(choices, state.complete_index, width, self._theme)

    # ---- prompt_toolkit

    def _application(self, output: Output, typed: Input | None) -> "Application[None]":
        search = SearchToolbar(forward_search_prompt="search: ", backward_search_prompt="search: ")
        window = Window(
            BufferControl(self._input, search_buffer_control=search.control, preview_search=True),
            wrap_lines=True,
            dont_extend_height=True,
            height=lambda: Dimension(min=1, max=max(1, min(INPUT_ROWS, self._size().rows // 2))),
            get_line_prefix=self._line_prefix,
        )
        app = _Inline(
            layout=Layout(HSplit([window, search]), focused_element=window),
            key_bindings=self._keys(),
            style=DummyStyle(),
            include_default_pygments_style=False,
            output=output,
            input=typed,
            erase_when_done=True,
            enable_page_navigation_bindings=False,
        )
        app.renderer = _RegionRenderer(self, output)
        app.ttimeoutlen = app.timeoutlen = ESCAPE_S
        if isinstance(app.input, Vt100Input):
            bindings = merge_key_bindings([load_key_bindings(), app.key_bindings or KeyBindings()])
            app.input.vt100_parser = _KeyParser(app.input.vt100_parser.feed_key_callback, bindings, self.now)
        app.key_processor.before_key_press += lambda _: self._key_pressed()
        return app

    @property
    def prompt(self) -> str:
        """The text before the input."""
        return "why › " if self._questions.reason_for else f"{self._label}› "

    def _line_prefix(self, line: int, folded: int) -> str:
        return self.prompt if not line and not folded else " " * columns(self.prompt)

    @property
    def is_busy(self) -> bool:
        """True while a picture is being written: the next one comes after it, with all that has changed until then."""
        return self._writer.is_busy

    def erase_region(self) -> str:
        """The text that takes the region away, and writes rows of the scrollback that were not written yet."""
        self._questions.drawn("")
        data = self._painter.paint(self._scrollback.take(), [], ScreenCursor(0, 0), self._size().columns)
        self._painter.forget()
        return data

    # ---- keys

    def _key_pressed(self) -> None:
        """Runs before any key: a letter that was about to answer a question was the first of a message."""
        self._key_before_at, self._key_at = self._key_at, self.now()
        if letter := self._questions.release():
            self._input.insert_text(letter)
        self._change()

    def _may_answer(self, key_at: float) -> bool:
        questions = self._open_questions()
        if not questions or self._questions.reason_for:
            return False
        return keys.may_answer(
            self.now(),
            key_at,
            self._questions.shown_at(questions[0].id),
            is_empty=not self._input.text,
            is_focused=self._questions.focused == questions[0].id,
        )

    def _keys(self) -> KeyBindings:
        bindings = KeyBindings()
        answers = Condition(lambda: self._may_answer(self._key_before_at)) & ~is_searching
        bindings.add("enter", filter=~is_searching)(self._entered)
        bindings.add("escape", "enter")(lambda _: self._input.insert_text("\n"))
        bindings.add("<bracketed-paste>")(lambda event: self._input.insert_text(self._pastes.fold(event.data)))
        for letter in "yane":
            bindings.add(letter, filter=answers, eager=True)(self._answer_key)
        bindings.add("escape")(lambda _: self._escape("esc"))
        for key in ("c-c", "<sigint>"):
            bindings.add(key)(lambda _: self._escape("ctrl-c"))
        bindings.add("c-d", filter=Condition(lambda: not self._input.text))(lambda _: self._wish(Leave()))
        bindings.add("c-t")(self._toggle_children)
        bindings.add("c-o")(self._toggle_output)
        bindings.add("c-g", filter=~is_searching)(self._edit_input)
        bindings.add("c-y")(self._focus_question)
        bindings.add("c-z")(lambda event: event.app.suspend_to_background())
        return bindings

    def _wish(self, wish: Wish) -> None:
        self._wishes.put_nowait(wish)

    def _entered(self, _: KeyPressEvent) -> None:
        buffer = self._input
        if buffer.complete_state and buffer.complete_state.current_completion:
            buffer.complete_state = None
            return
        text = buffer.text
        if self._questions.reason_for:
            question, verdict = self._questions.reason_for
            self._leave_reason()
            self._answer(question, verdict, text.strip())
            return
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
            return
        if not text.strip():
            return
        buffer.reset(append_to_history=True)
        if text.startswith("!") and text[1:].strip():
            get_app().create_background_task(self._run_here(text[1:].strip()))
            return
        whole = self._pastes.unfold(text)
        ran: list[CommandRan] = []
        if not whole.startswith("/"):  # a command of the chat stays one: the output waits for a message
            ran, self._ran = self._ran, []
        self._wish(WordsSent(with_output(ran, whole), text))

    def _escape(self, key: Any) -> None:
        action = keys.on_escape(
            key,
            has_menu=self._input.complete_state is not None or is_searching(),
            is_answering=bool(self._questions.reason_for or self._questions.focused),
            has_turn=self._turn is not None,
            is_empty=not self._input.text,
            is_armed=self._is_armed,
        )
        match action:
            case "close menu":
                if is_searching():
                    stop_search()
                else:
                    self._input.cancel_completion()
            case "back":
                self._questions.focused = ""
                if self._questions.reason_for:
                    self._leave_reason()
            case "stop":
                self._wish(StopWanted())
            case "clear":
                self._input.reset()
            case "arm":
                self._armed_until = self.now() + keys.ARMED_S
            case "leave":
                self._wish(Leave())
            case "nothing":
                pass
        self._change()

    def _toggle_children(self, _: KeyPressEvent) -> None:
        self._shows_all = not self._shows_all

    def _toggle_output(self, _: KeyPressEvent) -> None:
        self._shows_output = not self._shows_output
        if self._shows_output and self._last_output is not None:
            self.say(replace(self._last_output, is_asked_for=True))

    def _focus_question(self, _: KeyPressEvent) -> None:
        questions = self._open_questions()
        self._questions.focused = questions[0].id if questions else ""

    # ---- answers

    def _answer_key(self, event: KeyPressEvent) -> None:
        """A letter that answers the question, if no other follows at once; after Ctrl-Y it does without a wait."""
        letter, question = event.data, self._open_questions()[0]
        if self._questions.focused == question.id:
            self._answer_letter(question, letter)
            return
        loop = asyncio.get_running_loop()
        self._questions.held = letter, loop.call_later(keys.PAUSE_S, self._held_letter_answers, question.id)

    def _held_letter_answers(self, question: str) -> None:
        letter = self._questions.release()
        asked = self._open_questions()
        if asked and asked[0].id == question:
            self._answer_letter(asked[0], letter)
        elif letter:
            self._input.insert_text(letter)

    def _answer_letter(self, question: OpenQuestion, letter: str) -> None:
        self._questions.focused = ""
        match question, letter:
            case PlanQuestion(), "n":
                self._ask_reason(question.id, "reject")
            case PlanQuestion(), "e":
                get_app().create_background_task(self._edit_plan(question))
            case CallQuestion(), "e":
                self._ask_reason(question.id, "no")
            case CallQuestion(), "a" if not region.always_key(question, self._width):
                self._input.insert_text(letter)
            case _ if letter in question.verdicts:
                self._answer(question.id, question.verdicts[letter])
            case _:
                self._input.insert_text(letter)

    def _answer(self, question: str, verdict: PersonVerdict, words: str = "") -> None:
        self._questions.answered.add(question)
        self._wish(QuestionAnswered(question, verdict, words))
        self._change()

    def _ask_reason(self, question: str, verdict: PersonVerdict) -> None:
        self._questions.reason_for = (question, verdict)
        self._questions.stash = self._input.document
        self._input.reset()
        self._change()

    def _leave_reason(self, *, keeps_words: bool = False) -> None:
        """Restore the input from before the reason; words of a reason that is not needed any more are kept in it."""
        words = self._input.text if keeps_words else ""
        self._questions.reason_for = None
        self._input.document = self._questions.stash
        if words:
            self.put_back(words)

    # ---- editor and commands

    def _edit_input(self, _: KeyPressEvent) -> None:
        self._input.document = Document(self._pastes.unfold(self._input.text))
        self._input.open_in_editor()

    async def _edit_plan(self, plan: PlanQuestion) -> None:
        buffer = Buffer(document=Document(plan.text), tempfile_suffix=".md")
        await buffer.open_in_editor()
        if buffer.text.strip() and buffer.text != plan.text:
            self._answer(plan.id, "edited", buffer.text)

    async def _run_here(self, command: str) -> None:
        self._scrollback.cut(self._width)
        async with in_terminal():
            self._writer.put(self._theme.paint(f"! {command}", "b") + "\r\n")
            ran = await run_here(command, lambda data: self._writer.put(data.decode("utf-8", "replace")))
            if ran.failure:
                self._writer.put(self._theme.paint(ran.failure, "r") + "\r\n")
        self._ran.append(ran)
        self._change()


class _Questions:
    """What the person has done with questions so far, and since when a question can be read."""

    def __init__(self) -> None:
        self.answered: set[str] = set()
        self.focused = ""
        """The question that the person went to by Ctrl-Y."""
        self.reason_for: tuple[str, PersonVerdict] | None = None
        """The question for whose denial the person writes a reason, and the verdict that goes with it."""
        self.stash = Document()
        """The input as it was before the reason."""
        self._drawn = self._seen = ""
        self._seen_at = 0.0
        self.held: tuple[str, asyncio.TimerHandle] | None = None
        """A letter that was typed, and the timer after which it answers."""

    def drawn(self, question: str) -> None:
        """A picture shows this question, or none."""
        self._drawn = question
        if question != self._seen:
            self._seen = ""

    def seen(self, now: float) -> None:
        """The terminal has taken the picture."""
        if self._drawn and self._drawn != self._seen:
            self._seen, self._seen_at = self._drawn, now

    def shown_at(self, question: str) -> float | None:
        """The time since which the question stands on the terminal; None if it does not."""
        return self._seen_at if question == self._seen else None

    def release(self) -> str:
        """The letter that was held, which answers nothing any more; empty if there is none."""
        if self.held is None:
            return ""
        (letter, timer), self.held = self.held, None
        timer.cancel()
        return letter


class _Inline(Application[None]):
    """An application that draws a new size like any other change: its painter knows what the old one left behind."""

    def _on_resize(self) -> None:
        self.invalidate()


class _KeyParser(Vt100Parser):
    """Reads what the terminal sends. Sequences that are no key here, and Alt keys without a meaning, have no effect:
    prompt_toolkit alone would read them as Escape and letters."""

    def __init__(
        self, feed_key: Callable[[KeyPress], None], bindings: KeyBindingsBase, now: Callable[[], float]
    ) -> None:
        self._bindings, self._now = bindings, now
        super().__init__(feed_key)

    def reset(self, request: bool = False) -> None:
        """Forget what is not complete."""
        self._sequences = TypedSequences()
        super().reset(request)

    def feed(self, data: str) -> None:
        """Characters have come."""
        for token in self._sequences.feed(data, self._now()):
            self._take(token)

    def flush(self) -> None:
        """No more characters have come for `ESCAPE_S`."""
        for token in self._sequences.flush():
            self._take(token)

    def _take(self, token: str) -> None:
        if token.startswith(ESC + ESC) and token[1:] not in ANSI_SEQUENCES:
            token = ESC  # a report came right behind the key
        if token.startswith(PASTE_BEGINS):
            self.feed_key_callback(KeyPress(Keys.BracketedPaste, token[len(PASTE_BEGINS) : -len(PASTE_ENDS)]))
        elif token[0] != ESC or token == ESC or self._is_key(token):
            super().feed(token)
            super().flush()

    def _is_key(self, token: str) -> bool:
        """True if the sequence is a key; with Alt, only if that has a meaning now."""
        found: Keys | tuple[Keys | str, ...] | None = ANSI_SEQUENCES.get(token)
        if found is None and (len(token) == 2 or token.startswith(ESC + ESC)):
            found = (Keys.Escape, *_keys(token[1:]))
        if not isinstance(found, tuple) or found[0] is not Keys.Escape:
            return found is not None
        return any(one.filter() for one in self._bindings.get_bindings_for_keys(found))


def _keys(token: str) -> tuple[Keys | str, ...]:
    found = ANSI_SEQUENCES.get(token, token)
    return found if isinstance(found, tuple) else (found,)


class _RegionRenderer(Renderer):
    """Lets prompt_toolkit lay out the input alone, and the screen draw the rest around it."""

    def __init__(self, screen: TerminalScreen, output: Output) -> None:
        self._screen = screen
        self._laid_out: InputRows = ([], ScreenCursor(0, 0))
        self._laid_out_for: tuple[object, ...] = ()
        super().__init__(DummyStyle(), output)

    def render(self, app: "Application[Any]", layout: Layout, is_done: bool = False) -> None:
        """Draw a picture, in one write."""
        if not self._bracketed_paste_enabled:
            self.output.enable_bracketed_paste()
            self._bracketed_paste_enabled = True
        if not self._screen.is_busy:
            rows, cursor = self._unchanged_input(app, layout)
            self.output.write_raw(self._screen.draw_region(rows, cursor))
        self.output.flush()

    def erase(self, leave_alternate_screen: bool = True) -> None:
        """Take the region away."""
        self.output.write_raw(self._screen.erase_region())
        self.output.flush()
        self.reset(leave_alternate_screen=leave_alternate_screen)

    def _unchanged_input(self, app: "Application[Any]", layout: Layout) -> InputRows:
        """The rows of the input. They are laid out anew only if it has changed: that takes half a picture's time."""
        shown = [one.buffer.document for one in layout.find_all_controls() if isinstance(one, BufferControl)]
        key = (self.output.get_size(), self._screen.prompt, layout.current_control, *shown)
        if key != self._laid_out_for:
            self._laid_out_for, self._laid_out = key, self._input_rows(app, layout)
        return self._laid_out

    def _input_rows(self, app: "Application[Any]", layout: Layout) -> InputRows:
        size = self.output.get_size()
        width = max(1, size.columns - 1)
        cells = Cells()
        height = max(1, layout.container.preferred_height(width, size.rows).preferred)
        layout.container.write_to_screen(
            cells, MouseHandlers(), WritePosition(0, 0, width, height), parent_style="", erase_bg=False, z_index=None
        )
        cells.draw_all_floats()
        app.layout.visible_windows = cells.visible_windows
        self._last_screen = cells
        place = cells.get_cursor_position(layout.current_window)
        return [_row(cells.data_buffer[y], width) for y in range(height)], ScreenCursor(place.x, place.y)


def _row(cells: dict[int, Char], width: int) -> str:
    """A row of prompt_toolkit's as text; selected or found characters are shown reversed."""
    shown: list[Char] = []
    last = max((x for x, cell in cells.items() if cell.char != " " and x < width), default=-1)
    x = 0
    while x <= last:
        shown.append(cells[x])
        x += cells[x].width or 1
    row = ""
    for is_marked, run in groupby(shown, lambda cell: "selected" in cell.style or "search" in cell.style):
        text = "".join(cell.char for cell in run)
        row += f"\x1b[7m{text}\x1b[0m" if is_marked else text
    return row + (" " if not shown or shown[-1].char in "›" else "")


class _Completer(Completer):
    """Slash commands at the beginning, files after `@`."""

    def __init__(self, complete: CompleteWord, folder: Path, now: Callable[[], float]) -> None:
        self._complete, self._folder, self._now = complete, folder, now
        self._files: list[str] = []
        self._found_at = -FILES_S

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """The completions of the word before the cursor."""
        before = document.text_before_cursor
        word = file_word(before)
        if word is not None:
            for path in best_matches(word, self._files):
                yield Completion(f"@{path}", start_position=-len(word) - 1)
            return
        for choice, meaning in self._complete(before):
            yield Completion(choice, start_position=-len(before.rpartition(" ")[2]), display_meta=meaning)

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """The same, after the list of files is brought up to date."""
        if file_word(document.text_before_cursor) is not None and self._now() - self._found_at > FILES_S:
            self._files = await asyncio.to_thread(files_below, self._folder)
            self._found_at = self._now()
        for completion in self.get_completions(document, complete_event):
            yield completion
