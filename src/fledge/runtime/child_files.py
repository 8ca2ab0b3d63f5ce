"""Files of children, as profiles and spawns need them: made for a request, shown to a session, looked at, removed.

What lies where is known to `workspaces`; this file brings it together with sessions and runs, and keeps what blocks out
of the event loop.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from fledge.core.child_files import ATTACHMENTS, child_file, readable_child_files
from fledge.core.handover import Handover
from fledge.core.protected import UNPROTECTED, Protected
from fledge.core.run import Run
from fledge.errors import NotArrived
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.spawn import SpawnRequest
from fledge.orchestrator.turns import TurnSnapshot
from fledge.store.base import OutboxPost, Session, Spec, Tx
from fledge.workspaces.places import Making, Places

READABLE_CHILDREN = 50
"""Of how many of its newest children with folders of their own a session may read those."""
REMOVE_AGAIN_S = 60.0
"""How soon a removal that failed is tried again."""


async def look_for_handover(look: Callable[[bool], Handover] | None, finally_: bool) -> Handover | None:
    """What a session hands over: thoroughly at its end, else at a glance; None if nothing is looked for.

    A glance is a few system calls; what takes long is done in a thread, and only where there is something.
    """
    if look is None:
        return None
    found = look(False)
    return await asyncio.to_thread(look, True) if finally_ and found != Handover() else found


def _with_child_files(tx: Tx, session: str) -> list[Run]:
    return [tx.runs.load(key) for key in tx.runs.with_leaves(session, READABLE_CHILDREN)]


class ChildFiles:
    """What is kept for children in a state folder; without one, nothing can be made."""

    def __init__(self, state: Path | None, protected: Protected = UNPROTECTED) -> None:
        self._places = Places(state, protected)

    def own_folder(self, leaf_name: str, workspace: Path) -> Path:
        """Where a child would work, in what is made under this name. Refused: nothing can be kept here."""
        return self._places.own_folder(leaf_name, workspace)

    async def make(self, request: SpawnRequest) -> None:
        """Make what the run leaves outside the database, and look whether its `cwd` is there."""
        making = Making(
            leaves=request.terms.leaves,
            files=request.files,
            source=request.source,
            workspace=request.facts.workspace,
            cwd=request.facts.cwd,
        )
        await asyncio.to_thread(self._places.make, making)

    async def remove(self, leaves: tuple[str, ...]) -> None:
        """Remove what runs left; what is gone already is fine, and a worktree that holds work stays."""
        await asyncio.to_thread(self._places.remove, leaves)

    async def call(self, post: OutboxPost) -> None:
        """Remove what the post names."""
        try:
            await self.remove(msgspec.json.decode(post.body, type=tuple[str, ...]))
        except OSError as error:
            raise NotArrived(f"could not be removed: {error}", wait_s=REMOVE_AGAIN_S) from error

    async def readable(self, engine: Engine, snapshot: TurnSnapshot) -> tuple[Path, ...]:
        """What a session may read besides its folder: files it was given, folders of its own children."""
        children: list[Run] = []
        if snapshot.has_children and self._places.has_folders:
            children = await engine.store.read(lambda tx: _with_child_files(tx, snapshot.session.key))
        return tuple(self._places.folder(name) for name in readable_child_files(snapshot.run, children))

    def handover(self, session: Session, run: Run | None, workspace: Path) -> Callable[[bool], Handover] | None:
        """How to look at what a child hands over; None of a session that hands over nothing."""
        facts = session.facts
        if run is None or not facts.artifacts:
            return None
        folder = f"{facts.cwd}/{facts.artifacts}" if facts.cwd else facts.artifacts
        return lambda thorough: self._places.handover(run.terms.leaves, workspace, folder, thorough)

    def attachments(self, session: Session, spec: Spec) -> str:
        """The folder with the files that a child was given; empty if it was given none."""
        return str(self._places.folder(child_file(ATTACHMENTS, session.key))) if spec.attachments else ""

    def branch(self, run: Run) -> str:
        """The branch of the child's worktree; empty if it has none."""
        return self._places.branch(run.terms.leaves)
