"""Which documents of a workspace speak in prompts: judged when a turn begins, accepted by people, left out until then.

When agents that can write are at work is remembered from their first step with tools to the end of their drive, also
over a crash. What decides whose a change is stands in `core.documents`; files are read elsewhere.
"""

import os
from collections.abc import Mapping

from msgspec.structs import replace

from fledge.core.documents import Document, Version, Workspace, judge, left_out_line
from fledge.orchestrator import outbox
from fledge.orchestrator.commit import Commit
from fledge.store.base import Tx


def known(tx: Tx, path: str) -> Workspace:
    """What is known of a workspace, by its real path."""
    return tx.workspaces.get(path) or Workspace(path)


def begin_work(c: Commit, session: str, path: str) -> None:
    """From now on, until its drive ends, the session may write in this workspace, by its real path."""
    c.tx.workspaces.begin_work(session, path, c.at)


def judge_all(c: Commit, session: str, path: str, found: Mapping[str, Version]) -> frozenset[str]:
    """The documents that must be left out, told once for each version; those that a person changed are accepted."""
    workspace = known(c.tx, path)
    above = [path]
    while above[-1] != os.path.dirname(above[-1]):
        above.append(os.path.dirname(above[-1]))
    spans = [span for one in above for span in known(c.tx, one).spans]
    spans += [(since, c.at) for place, since in c.tx.workspaces.at_work() if place in above]
    names: set[str] = set()
    for name, version in found.items():
        before = workspace.document(name)
        verdict = judge(version, before, spans)
        if verdict != "left out":
            workspace = workspace.with_document(Document(name, version.digest))
        else:
            names.add(name)
            workspace = workspace.with_document(replace(before, left_out=version))
            if version != before.left_out:
                outbox.tell(c, session, f"document:{path}/{name}:{version.digest[:16]}", left_out_line(name))
    c.tx.workspaces.save(workspace)
    return frozenset(names)


def accept(c: Commit, path: str, digests: Mapping[str, str]) -> list[str]:
    """These versions are a person's. Answers the documents that were left out until now."""
    workspace = known(c.tx, path)
    before = left_out(c.tx, path)
    for name, digest in digests.items():
        workspace = workspace.with_document(Document(name, digest))
    c.tx.workspaces.save(workspace)
    return [name for name in before if name in digests]


def left_out(tx: Tx, path: str) -> list[str]:
    """The documents of a workspace that were left out when they were last judged."""
    return [one.name for one in known(tx, path).documents if one.left_out is not None]
