"""What a runtime is: something with a name that can carry out a child's task, other than our own loop over a model.

A runtime knows nothing of stores, epochs or announces. It gets a piece of `Work`, may `say` how it goes, and returns
its final words, or raises `Faltered`. Whatever else it raises counts the same. It is cancelled when it must stop, and
must leave nothing behind then. `foreign` turns that into commits. One conformance suite runs over every
runtime, our own loop among them.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from fledge.errors import FledgeError


class Work(Struct, frozen=True, kw_only=True):
    """One execution of a child's task, or one message to it after its end. A function that takes it and answers text
    is a runtime: `fledge.open(…, runtimes={"shouter": shout})`, and `fl.spawn(task, runtime="shouter")`.

    >>> async def shout(work: fledge.Work) -> str:
    ...     work.say("taking a breath")
    ...     return work.prompt.upper()
    """

    session: str
    """The session key of the run."""
    run_id: str
    attempt: int
    task: str
    label: str
    prompt: str
    """What to do now: the task, or the task with the messages since then."""
    workspace: Path
    env: Mapping[str, str] = field(default_factory=dict)
    """The environment without secrets."""
    say: Callable[[str], None]
    """Report progress to the run's watchers, a line at a time. Never waits, never fails."""


class Faltered(FledgeError):
    """The runtime could not finish. `aborted`: it was cut short rather than wrong."""

    def __init__(self, error: str, aborted: bool = False) -> None:
        super().__init__(error)
        self.error, self.aborted = error, aborted


class Runtime(Protocol):
    """Carries out work."""

    @property
    def repeatable(self) -> bool:
        """True if work that a crash interrupted may simply be done again."""
        ...

    @property
    def retries(self) -> int:
        """How often an error is followed by another try within the same attempt."""
        ...

    async def run(self, work: Work) -> str:
        """Do the work; answers its final words. Raises `Faltered` if it cannot. Cancelled when it must stop."""
        ...
