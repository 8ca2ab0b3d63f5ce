"""Files of children for profiles and spawns: make them for a request, let a session read them, read a handover, remove.

`workspaces` knows the paths. This file connects them with sessions and runs, and moves blocking calls to threads.
"""

import asyncio
from functools import partial
from pathlib import Path

import msgspec

from fledge.core.child_files import ATTACHMENTS, child_file, readable_child_files
from fledge.core.handover import Handover, HandoverLook
from fledge.core.protected import UNPROTECTED, Protected
from fledge.core.redact import error_words
from fledge.core.run import Run
from fledge.errors import NotArrived
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.spawn import SpawnRequest
from fledge.orchestrator.turns import TurnSnapshot
from fledge.store.base import OutboxPost, Session, Spec
from fledge.workspaces.places import Places

READABLE_CHILDREN = 50
"""A session may read the folders of this many of its newest children that have one."""
REMOVE_AGAIN_S = 60.0
"""Pause before a failed removal is tried again."""


async def look_for_handover(look: HandoverLook | None, finally_: bool) -> Handover | None:
    """The handover of a session, read quickly, or thoroughly at its end; None without `look`.

    The quick reading is a few system calls. The thorough one runs in a thread, and only if the quick one found files.
    """
    if look is None:
        return None
    found = look(False)
    return await asyncio.to_thread(look, True) if finally_ and found != Handover() else found


class ChildFiles:
    """The files of children in a state folder."""

    def __init__(self, state: Path, protected: Protected = UNPROTECTED) -> None:
        self.places = Places(state, protected)

    async def make(self, request: SpawnRequest) -> None:
        """Make the files of a new run, and check that its `cwd` exists."""
        leaves, facts = request.terms.leaves, request.facts
        await asyncio.to_thread(self.places.make, leaves, request.files, request.source, facts.workspace, facts.cwd)

    async def remove(self, leaves: tuple[str, ...]) -> None:
        """Remove files of runs. Files that are gone are skipped, and a worktree with uncommitted work is kept."""
        await asyncio.to_thread(self.places.remove, leaves)

    async def call(self, post: OutboxPost) -> None:
        """Remove the files that the post names."""
        try:
            await self.remove(msgspec.json.decode(post.body, type=tuple[str, ...]))
        except OSError as error:
            raise NotArrived(f"could not be removed: {error_words(error)}", wait_s=REMOVE_AGAIN_S) from error

    async def readable(self, engine: Engine, snapshot: TurnSnapshot) -> tuple[Path, ...]:
        """The folders that a session may read besides its own: its attachments, and those of its children."""
        children: list[Run] = []
        if snapshot.has_children and self.places.has_folders:
            session = snapshot.session.key
            children = await engine.store.read(
                lambda tx: [tx.runs.load(key) for key in tx.runs.with_leaves(session, READABLE_CHILDREN)]
            )
        names = readable_child_files(snapshot.run, children)
        return tuple([self.places.folder(name) for name in names]) if names else ()

    def handover(self, session: Session, run: Run | None, workspace: Path) -> HandoverLook | None:
        """Reads the files that a child hands over; None for a session that hands over none."""
        facts = session.facts
        if run is None or not facts.artifacts:
            return None
        folder = f"{facts.cwd}/{facts.artifacts}" if facts.cwd else facts.artifacts
        return partial(self.places.handover, run.terms.leaves, workspace, folder)

    def attachments(self, session: Session, spec: Spec) -> str:
        """The folder with the files attached to the child's spawn; empty if there are none."""
        return str(self.places.folder(child_file(ATTACHMENTS, session.key))) if spec.attachments else ""
