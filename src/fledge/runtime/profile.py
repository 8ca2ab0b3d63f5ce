"""How one session thinks in one turn: what a turn reads once, and who knows it.

A `Profile` is a value; where it comes from (settings, documents, a test) is the `Profiles`' own business.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from fledge.core.handover import Handover
from fledge.core.permission import Offer, Permission
from fledge.core.progress import StepLimits
from fledge.core.protected import UNPROTECTED, Protected
from fledge.core.route import Address
from fledge.models.base import Model, Thinking, Usage
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.turns import Drive
from fledge.store.base import OutboxPost
from fledge.store.entry_files import EntryFiles
from fledge.tools.registry import ToolSet


def _unpriced(model: str, usage: Usage) -> float | None:
    return None


def _no_rules(command: str) -> None:
    return None


class Profile(Struct, frozen=True, kw_only=True):
    """How one session thinks: everything that is read once per turn."""

    model: Model
    model_name: str
    """The provider's own name for it."""
    system: str
    tools: ToolSet
    workspace: Path
    cwd: str = ""
    """Where in it relative paths begin."""
    readable: tuple[Path, ...] = ()
    """Folders besides that it may read."""
    handover: Callable[[bool], Handover] | None = None
    """Looks, blocking, at what the session hands over; thoroughly or not. None: it hands over nothing but words."""
    thinking: Thinking = "off"
    max_tokens: int = 8192
    most_tokens: int = 0
    """The longest reply that the model can give; 0: unknown."""
    window: int = 128_000
    asks: frozenset[str] = frozenset()
    """Tools that need a person's approval for each call."""
    rule_for: Callable[[str], Permission | Offer | None] = field(default_factory=lambda: _no_rules)
    """Of a command that asks: the person's rule that covers it, else the rule that an *always* would make of it."""
    step_limits: StepLimits = StepLimits()
    patience_s: float = 600.0
    """How long a run waits for a model that cannot answer."""
    approval_s: float = 24 * 3600.0
    compacts: bool = False
    """What was said before the turn is summarised before its first step."""
    unasked: frozenset[str] = frozenset()
    """Tools about which nobody is asked: what would need a person's yes is refused."""
    boxed: bool = False
    """Its commands run in a sandbox."""
    offline: bool = False
    """That sandbox has no network."""
    is_budgeted: bool = False
    protected: Protected = UNPROTECTED
    env: Mapping[str, str] = field(default_factory=dict)
    images: EntryFiles | None = None
    """Where images and attached files are kept; None: nowhere, images are told in words."""
    sees: bool = False
    """One of its models takes images."""
    cost_usd: Callable[[str, Usage], float | None] = field(default_factory=lambda: _unpriced)
    """What a step cost, if the price is known."""
    task_head: str = ""
    """What the model sees above its task in a child's first message; empty of a conversation."""
    place: str = ""
    """The workspace by its real path, under which its documents are known."""
    works_in: str = ""
    """Where its tools can write, by real path: its workspace, or everywhere; empty if they cannot."""
    accepts: bool = False
    """What it writes of documents counts as a person's: it is a conversation, in a turn that a person began."""
    checklist: str | None = None
    """What a heartbeat is to look after; None if nobody wrote anything down."""


class Profiles(Protocol):
    """Knows how each session thinks."""

    async def profile(self, engine: Engine, drive: Drive) -> Profile:
        """The profile for this drive. Raises Refused if there is none, for example if the model has no key."""
        ...

    async def remove(self, leaves: tuple[str, ...]) -> None:
        """Remove what a run left outside the database."""
        ...

    async def call(self, post: OutboxPost) -> Address | None:
        """Send one thing from the outbox; answers the address that a hook was asked for, if it named one."""
        ...
