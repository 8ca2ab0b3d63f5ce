"""A conversation played from a script in this terminal: `python -m bench.terminal_scene [words a second] [repeats]`.

An answer streams while five subagents begin, work and end; one asks for a yes, one has a plan. What is typed is taken
like in a chat. For looking at the screen, and for `bench/terminal.py`, which measures it. `NUMBERED=1` streams numbered
words, so that a test can find each; `RESIZES=1` waits at some of these for a terminal of another width: what was on
its way while a terminal changes stands where no program can know; `EXIT=1` leaves when the answer is complete;
`REPORT=FILE` writes what it cost.
"""

import asyncio
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

from fledge.cli.term.opening import in_terminal
from fledge.cli.term.screen import TerminalScreen
from fledge.cli.term.shown import (
    CallQuestion,
    EndedItem,
    Leave,
    NoticeItem,
    OutputItem,
    PlanQuestion,
    QuestionAnswered,
    SpokenItem,
    StopWanted,
    TurnShown,
    WordsSent,
    WorkingChild,
)

PARAGRAPH = (
    "The **delivery lattice** keeps every announcement exactly once: a child's result is written *before* its "
    "requester is woken, and a crash between the two is repaired by the `reconcile` pass at the next start. This "
    "sentence is long on purpose, so that it wraps over several rows and shows that streaming goes on. "
)
TEXT = f"""# Findings

{PARAGRAPH * 2}

Wide text: 你好，世界。日本語のテキストも正しく折り返される必要があります。 Emoji: 🚀 👩‍💻 🇩🇪 ✅ done.

- first item with **bold** and a [link](https://example.org/a/b)
- second item that is quite long, long enough to wrap at forty and at eighty columns with its hanging indent
  - nested item
1. numbered
2. also numbered

```python
def settle(run: Run) -> Outcome:
    # a comment that is rather long, longer than forty columns at least, maybe even longer than eighty
    return Outcome(status="ok")
```

| run | state | tokens | note |
|-----|-------|-------:|------|
| scout | done | 12,345 | found 3 files |
| 翻訳者 | running | 998 | 日本語 cell |
| checker | failed | 4 | a rather long cell that must be wrapped somewhere |

> A quotation that is also long enough to need a second row at eighty columns, with `code` in it.

{PARAGRAPH * 3}

Done.
"""
NUMBERED = "".join(f"w{number:04d}" + ("\n\n" if number % 60 == 59 else " ") for number in range(420))
RESIZED_AT = range(40, 400, 60)
"""The numbered words at which the scene waits for another width."""
LABELS = ("scout", "翻訳者", "checker", "writer 🖋", "fetcher with a rather long label")
PLAN = "1. **Read** the docs\n2. Fix them\n3. Run `make test`\n"


class Player:
    """Plays the script and takes what the person wants."""

    def __init__(self, screen: TerminalScreen, rate: float, repeats: int) -> None:
        self._screen, self._rate, self._repeats = screen, rate, repeats
        self.words = 0
        """How many have been streamed."""
        self._queued: list[str] = []
        self._asked: list[CallQuestion | PlanQuestion] = []
        self._children: dict[str, WorkingChild] = {}

    async def play(self) -> None:
        """The whole answer."""
        screen, now = self._screen, self._screen.now
        began = now()
        screen.turn(TurnShown("thinking", began))
        words = re.findall(r"\S+\s*|\s+", NUMBERED if os.environ.get("NUMBERED") else TEXT)
        begun = time.perf_counter()
        for number, word in enumerate(words * self._repeats):
            screen.turn(TurnShown("answering", began, tokens=number + 1))
            screen.words(word)
            self.words += 1
            self._work(number)
            wait = begun + (number + 1) / self._rate - time.perf_counter()
            await asyncio.sleep(max(0.0, wait))
            if number in RESIZED_AT and os.environ.get("RESIZES"):
                await _another_width()
        screen.complete()
        screen.turn(None)
        self._read()

    def _work(self, number: int) -> None:
        """What else happens at this word."""
        now, place, child = self._screen.now(), number % 40, number // 40
        if place == 20 and child < len(LABELS):
            self._children[LABELS[child]] = WorkingChild(LABELS[child], "thinking", now)
        elif place == 35 and child < len(LABELS):
            began = self._children[LABELS[child]].since
            self._children[LABELS[child]] = WorkingChild(LABELS[child], "exec pytest -q", began, 2000 + number)
            self._screen.say(OutputItem("exec pytest -q", "2 passed in 0.31s"))
        elif place == 5 and 0 < child <= len(LABELS) and LABELS[child - 1] in self._children:
            ended = self._children.pop(LABELS[child - 1])
            result = "Three files hold the rule.\nThe second one is wrong.\nSee docs/contract.md.\nAnd more."
            self._screen.say(EndedItem(ended.label, "done", now - ended.since, 8100, 0.01, result))
        if number == 60:
            self._ask(CallQuestion("q1", "scout", "rm -rf build && make", "~/src/fledge", "make"))
        if number == 70:
            self._ask(PlanQuestion("p1", "checker", PLAN))
        self._screen.children(tuple(self._children.values()))

    def _ask(self, question: CallQuestion | PlanQuestion) -> None:
        self._asked.append(question)
        self._screen.ask(tuple(self._asked))

    def _read(self) -> None:
        """The turn hears what is queued."""
        for text in self._queued:
            self._screen.say(SpokenItem(text))
        self._queued.clear()
        self._screen.queued(())

    async def listen(self, playing: "asyncio.Task[None]") -> None:
        """Take what the person wants, until they leave."""
        while True:
            match await self._screen.wish():
                case Leave():
                    playing.cancel()
                    return
                case StopWanted():
                    playing.cancel()
                    self._screen.complete()
                    self._screen.turn(None)
                    self._screen.say(NoticeItem("stopped; subagents go on"))
                    self._screen.put_back("\n".join(self._queued))
                    self._queued.clear()
                    self._screen.queued(())
                case WordsSent(shown=shown):
                    self._queued.append(shown)
                    self._screen.queued(tuple(self._queued))
                    if playing.done():
                        self._read()
                case QuestionAnswered(id=question, verdict=verdict, words=words):
                    self._asked = [asked for asked in self._asked if asked.id != question]
                    self._screen.ask(tuple(self._asked))
                    self._screen.say(NoticeItem(f"{question}: {verdict} {words}".strip()))


async def _another_width() -> None:
    """Wait until the terminal has changed its width."""
    width = os.get_terminal_size().columns
    while os.get_terminal_size().columns == width:  # noqa: ASYNC110 (the signal is handled by the screen)
        await asyncio.sleep(0.01)


class Report:
    """What the answer cost: words, CPU of all threads, and the longest time that the loop stood still."""

    def __init__(self) -> None:
        self._cpu_s, self._lag_s = time.process_time(), 0.0

    async def watch(self) -> None:
        """Notice when the loop is late."""
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.02)
            self._lag_s = max(self._lag_s, time.perf_counter() - before - 0.02)

    def write(self, path: Path, words: int) -> None:
        """Leave it for whoever started this."""
        cost = {"words": words, "cpu_s": time.process_time() - self._cpu_s, "lag_s": self._lag_s}
        path.write_text(json.dumps(cost), "utf-8")


async def main(rate: float, repeats: int) -> None:
    """Play until the person leaves."""
    with tempfile.TemporaryDirectory() as folder:
        await _play(Path(folder) / "history", rate, repeats)


async def _play(history: Path, rate: float, repeats: int) -> None:
    async with in_terminal(history, lambda _: ()) as screen:
        report = Report()
        watching = asyncio.ensure_future(report.watch())
        screen.say(NoticeItem("a scripted scene · ctrl-d leaves"))
        player = Player(screen, rate, repeats)
        playing = asyncio.ensure_future(player.play())
        listening = asyncio.ensure_future(player.listen(playing))
        waited = {playing, listening} if os.environ.get("EXIT") else {listening}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if path := os.environ.get("REPORT"):
            report.write(Path(path), player.words)
        for task in (listening, playing, watching):
            task.cancel()


if __name__ == "__main__":
    given = sys.argv[1:]
    asyncio.run(main(float(given[0]) if given else 20.0, int(given[1]) if len(given) > 1 else 1))
