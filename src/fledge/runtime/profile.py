"""`Profile`: model, prompt, tools and limits of one turn, read once when the turn begins. `Profiles` makes them.

A `Profile` is a value; whether it comes from settings or from a test is known only to `Profiles`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from fledge.core.handover import HandoverLook
from fledge.core.permission import Offer, Permission
from fledge.core.progress import StepLimits
from fledge.core.protected import UNPROTECTED, Protected
from fledge.core.route import Address
from fledge.core.run import Run
from fledge.models.base import Model, Thinking, Usage
from fledge.models.retry import Retrying
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.turns import Drive
from fledge.runtime.base import Runtime
from fledge.store.base import OutboxPost, Session, Spec
from fledge.store.entry_files import EntryFiles
from fledge.tools.registry import ToolSet


def _unpriced(model: str, usage: Usage) -> float | None:
    return None


def _no_rules(command: str) -> None:
    return None


class Profile(Struct, frozen=True, kw_only=True):
    """Model, prompt, tools and limits of one turn."""

    model: Model | Retrying
    model_name: str
    """The provider's name of the model."""
    system: str
    tools: ToolSet
    workspace: Path
    cwd: str = ""
    """The current folder, relative to the workspace."""
    readable: tuple[Path, ...] = ()
    """More folders that tools may read."""
    handover: HandoverLook | None = None
    """Reads what the session hands over (blocking); with True, thoroughly. None: it hands over only its reply."""
    thinking: Thinking = "off"
    max_tokens: int = 8192
    most_tokens: int = 0
    """The most tokens that the model can reply with; 0: unknown."""
    window: int = 128_000
    asks: frozenset[str] = frozenset()
    """Tools that need a person's approval for each call."""
    rule_for: Callable[[str], Permission | Offer | None] = _no_rules
    """For a command that needs approval: the rule that covers it, else the rule that *always* would add."""
    step_limits: StepLimits = StepLimits()
    approval_s: float = 24 * 3600.0
    compacts: bool = False
    """Summarise the transcript before the first step."""
    unasked: frozenset[str] = frozenset()
    """Tools that never ask a person: a call that would need approval is refused."""
    boxed: bool = False
    """Commands run in a sandbox."""
    offline: bool = False
    """The sandbox has no network."""
    is_budgeted: bool = False
    protected: Protected = UNPROTECTED
    env: Mapping[str, str] = field(default_factory=dict)
    images: EntryFiles
    """Stores images and attached files."""
    sees: bool = False
    """One of the models accepts images."""
    cost_usd: Callable[[str, Usage], float | None] = _unpriced
    """Cost of a step in US dollars; None if the price is unknown."""
    task_head: str = ""
    """The text before the task in a child's first message; empty for a conversation."""
    place: str = ""
    """The real path of the workspace; documents are stored under it."""
    works_in: str = ""
    """The real path in which tools can write: the workspace, or `/`; empty if they cannot write."""
    accepts: bool = False
    """Documents that it writes are accepted: it is a conversation, in a turn that a person's message began."""
    checklist: str | None = None
    """The text of `HEARTBEAT.md` for a heartbeat; None if there is no such file."""


class Profiles(Protocol):
    """Makes the profile of each turn, knows the other runtimes, and acts outside the database for the engine."""

    async def profile(self, engine: Engine, drive: Drive) -> Profile:
        """The profile of this turn. Raises `Refused` if it cannot run, for example if the model has no key."""

    async def remove(self, leaves: tuple[str, ...]) -> None:
        """Remove files that a run left outside the database."""

    async def call(self, post: OutboxPost) -> Address | None:
        """Perform a post of the outbox; returns the address that a hook named, if it was asked for one."""

    def runtime(self, name: str) -> Runtime | None:
        """The runtime of this name; None if it is not configured."""

    def check_needs(self, spec: Spec) -> None:
        """Raise `NeedsProgram` if the run needs a function or runtime of a program that this process does not have."""

    def work_place(self, session: Session) -> tuple[Path, Mapping[str, str]]:
        """The folder for the work of this session in a foreign runtime, and the environment without secrets. Raises
        `Refused` if the folder may not be used."""

    def handover(self, session: Session, run: Run | None) -> HandoverLook | None:
        """Reads (blocking) the files that the session hands over; None if it hands over none."""
