"""Documents of a workspace that speak in prompts: which version of each is accepted, and whose a change is.

A version is accepted if a person wrote it. That is taken to be so if the file changed while no agent that can write was
at work in the workspace, or if the conversation itself wrote it in a turn that a person began; else a person must say
so. This file knows neither files nor stores; *spans* are times at work, as a store remembers them.
"""

from bisect import insort
from collections.abc import Iterable
from typing import Final, Literal

from msgspec.structs import replace

from fledge.core.run import Instant
from fledge.core.value import Value

WorkSpan = tuple[Instant, Instant]
"""From when to when an agent was at work."""

SLACK_S: Final = 2.0
"""How far a file's clock may be off from ours: so long before and after its work, an agent is taken to be at work."""
MOST_SPANS: Final = 32
"""How many spans of a workspace are kept apart; older ones become one that covers them all."""


class Version(Value):
    """A document as it lies there."""

    digest: str
    changed_at: Instant


class Document(Value, omit_defaults=True):
    """The record of a document."""

    name: str
    accepted: str = ""
    """The digest of the accepted version; empty: none."""
    left_out: Version | None = None
    """A version that was found to be an agent's."""


class Workspace(Value, omit_defaults=True):
    """The record of a workspace: its documents, and when agents that can write were at work in it."""

    path: str
    documents: tuple[Document, ...] = ()
    spans: tuple[WorkSpan, ...] = ()

    def document(self, name: str) -> Document:
        """The record of this document."""
        return next((one for one in self.documents if one.name == name), Document(name))

    def with_document(self, document: Document) -> "Workspace":
        """This workspace with a changed record of a document."""
        others = (one for one in self.documents if one.name != document.name)
        return replace(self, documents=tuple(sorted((*others, document), key=lambda one: one.name)))

    def with_span(self, span: WorkSpan) -> "Workspace":
        """This workspace with one more span of work. Of too many spans, the older half become one that covers them
        all."""
        spans = [*self.spans]
        insort(spans, span)
        if len(spans) > MOST_SPANS:
            older, newer = spans[: MOST_SPANS // 2], spans[MOST_SPANS // 2 :]
            spans = [(older[0][0], max(end for _, end in older)), *newer]
        return replace(self, spans=tuple(spans))


DocumentVerdict = Literal["accepted", "a person's", "left out"]


def judge(found: Version, known: Document, spans: Iterable[WorkSpan]) -> DocumentVerdict:
    """Whether a version is accepted, may be accepted as a person's, or must be left out."""
    if found.digest == known.accepted:
        return "accepted"
    if found == known.left_out:
        return "left out"
    at_work = any(begun - SLACK_S <= found.changed_at <= ended + SLACK_S for begun, ended in spans)
    return "left out" if at_work else "a person's"


def left_out_line(name: str) -> str:
    """The line for people about a document that is left out."""
    return f"{name} changed while an agent worked: /reload takes it in"
