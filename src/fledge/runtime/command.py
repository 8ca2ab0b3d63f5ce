"""The runtime `command`: any program that takes a task and prints an answer, such as another agent's command line.

The program gets the task on standard input, or as an argument in place of `{task}`. Its standard output is the answer,
each line of its standard error is progress, and an exit code other than 0 is an error. It is killed with its process
group. It runs as the user who configured it: it is not sandboxed.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from fledge.core.freeze import one_line
from fledge.core.redact import error_words
from fledge.runtime.base import Faltered, Work
from fledge.tools.process import TAIL_BYTES, HeadTail, run

TASK: Final = "{task}"
RESULT_BYTES: Final = 128 * 1024
"""More than a frozen result can hold: the rest would be cut when the result is frozen."""
MOST_ARGUMENT: Final = 100_000
COMPLAINT_CHARS: Final = 500


class CommandRuntime(Struct, frozen=True, kw_only=True):
    """Runs a program for each piece of work: `fledge.open(…, runtimes={"counter": …})`, and
    `fl.spawn(task, runtime="counter")`. The task is its standard input, what it prints is the answer.

    >>> counter = fledge.CommandRuntime(command=["wc", "-w"], repeatable=True)
    """

    command: Sequence[str]
    """The program and its arguments. `{task}` in an argument is replaced by the task; without it, it is the input."""
    timeout_s: float | None = None
    """How long one execution may take; None leaves it to the run's own timeout."""
    env: Mapping[str, str] = {}
    """Variables to add, such as the key that this program needs."""
    repeatable: bool = False
    """Work that a crash interrupted may simply be done again."""
    retries: int = 0
    """How often a failure is followed by another try."""

    async def run(self, work: Work) -> str:
        """Run the program and return its standard output."""
        as_argument = any(TASK in argument for argument in self.command)
        if as_argument and (len(work.prompt) > MOST_ARGUMENT or "\x00" in work.prompt):
            raise Faltered(f"the task is too long for an argument ({len(work.prompt)} characters): use standard input")
        argv = [argument.replace(TASK, work.prompt) for argument in self.command]
        given = b"" if as_argument else work.prompt.encode("utf-8", "replace")
        lines = _Lines(work)
        kept = HeadTail(RESULT_BYTES, TAIL_BYTES)
        env = {**work.env, **self.env, "FLEDGE_SESSION": work.session, "FLEDGE_RUN": work.run_id}
        try:
            ended = await run(argv, work.workspace, env, self.timeout_s, given=given, kept=kept, heard=lines.add)
        except (OSError, ValueError) as error:
            raise Faltered(f"{self.command[0]} could not be started ({error_words(error)})") from None
        lines.end()
        if ended.code != 0:
            # "killed": one of our limits ended it; anything else is its own failure.
            aborted = ended.said.startswith("killed: ")
            said = lines.last or one_line(ended.output, COMPLAINT_CHARS)
            raise Faltered(f"{ended.said}{': ' if said else ''}{said}", aborted)
        return ended.output.strip()


class _Lines:
    """Splits output into lines and reports each as progress."""

    MOST = 4096

    def __init__(self, work: Work) -> None:
        self._work, self._rest = work, b""
        self.last = ""

    def add(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            self._tell(line)
        if len(self._rest) > self.MOST:
            self.end()

    def end(self) -> None:
        self._tell(self._rest)
        self._rest = b""

    def _tell(self, line: bytes) -> None:
        text = one_line(line[: self.MOST].decode("utf-8", "replace"), COMPLAINT_CHARS)
        if text.strip():
            self.last = text
            self._work.say(text)
