"""For casts that make profiles and have no other runtimes: every session thinks in our own loop."""

from collections.abc import Mapping
from pathlib import Path

from fledge.core.handover import HandoverLook
from fledge.core.run import Run
from fledge.runtime.base import Runtime
from fledge.store.base import Session, Spec


class NoRuntimes:
    """There are no other runtimes."""

    def runtime(self, name: str) -> Runtime | None:
        """None has this name."""
        return None

    def check_needs(self, spec: Spec) -> None:
        """Nothing is missing."""

    def work_place(self, session: Session) -> tuple[Path, Mapping[str, str]]:
        """Nobody works there."""
        raise AssertionError(session)

    def handover(self, session: Session, run: Run | None) -> HandoverLook | None:
        """Nobody hands anything over."""
        return None
