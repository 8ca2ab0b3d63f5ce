"""`Runtime`: executes a child's task in place of our own loop over a model. It has a name.

A runtime knows nothing of stores, epochs or announcements. It gets a piece of `Work`, reports progress with `say`, and
returns its final text, or raises `Faltered`. Any other exception counts as `Faltered`. It is cancelled to stop it, and
must then leave nothing running. `foreign` makes commits of this. One conformance suite runs over all runtimes, our own
loop included.
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
    """The input of this attempt: the task, or the task with the messages since then."""
    workspace: Path
    env: Mapping[str, str] = field(default_factory=dict)
    """The environment without secrets."""
    say: Callable[[str], None]
    """Report progress to the run's watchers, a line at a time. Never waits, never fails."""


class Faltered(FledgeError):
    """The runtime could not finish. `aborted`: it was ended early, by a limit."""

    def __init__(self, error: str, aborted: bool = False) -> None:
        super().__init__(error)
        self.error, self.aborted = error, aborted


class Runtime(Protocol):
    """Executes work."""

    @property
    def repeatable(self) -> bool:
        """True if work that a crash interrupted may be done again."""

    @property
    def retries(self) -> int:
        """How many times failed work is retried within one attempt."""

    async def run(self, work: Work) -> str:
        """Do the work and return its final text. Raises `Faltered` if it fails. It is cancelled to stop it."""
