"""Whose a change of a document is: every case of the judgement, and times at work that are kept."""

import pytest

from fledge.core.documents import (
    MOST_SPANS,
    SLACK_S,
    Document,
    DocumentVerdict,
    Version,
    Workspace,
    WorkSpan,
    judge,
    left_out_line,
)

NEW = Version("new", 100.0)
WORK: WorkSpan = (90.0, 95.0)


@pytest.mark.parametrize(
    ("known", "spans", "verdict"),
    [
        (Document("SOUL.md"), [], "a person's"),
        (Document("SOUL.md", "old"), [], "a person's"),
        (Document("SOUL.md", "new"), [], "accepted"),
        (Document("SOUL.md", "new"), [(99.0, 101.0)], "accepted"),
        (Document("SOUL.md", "old"), [(99.0, 101.0)], "left out"),
        (Document("SOUL.md"), [(99.0, 101.0)], "left out"),
        (Document("SOUL.md"), [WORK], "a person's"),
        (Document("SOUL.md"), [(105.0, 110.0)], "a person's"),
        (Document("SOUL.md"), [WORK, (105.0, 110.0)], "a person's"),
        (Document("SOUL.md"), [WORK, (99.0, 101.0), (105.0, 110.0)], "left out"),
        (Document("SOUL.md"), [(100.0 + SLACK_S, 110.0)], "left out"),
        (Document("SOUL.md"), [(100.01 + SLACK_S, 110.0)], "a person's"),
        (Document("SOUL.md"), [(90.0, 100.0 - SLACK_S)], "left out"),
        (Document("SOUL.md"), [(90.0, 99.99 - SLACK_S)], "a person's"),
        (Document("SOUL.md", "old", NEW), [], "left out"),
        (Document("SOUL.md", "old", Version("new", 99.0)), [], "a person's"),
        (Document("SOUL.md", "old", Version("other", 100.0)), [], "a person's"),
        (Document("SOUL.md", "new", NEW), [(99.0, 101.0)], "accepted"),
    ],
)
def test_a_change_is_a_persons_unless_an_agent_was_at_work_then(
    known: Document, spans: list[WorkSpan], verdict: DocumentVerdict
) -> None:
    assert judge(NEW, known, spans) == verdict


def test_what_is_known_of_one_document_changes_nothing_of_another() -> None:
    workspace = Workspace("/w").with_document(Document("B.md", "b")).with_document(Document("A.md", "a"))
    changed = workspace.with_document(Document("B.md", "c"))
    assert [(one.name, one.accepted) for one in changed.documents] == [("A.md", "a"), ("B.md", "c")]
    assert (changed.document("B.md").accepted, changed.document("C.md")) == ("c", Document("C.md"))


def test_of_too_many_times_at_work_the_older_become_one_and_no_moment_is_lost() -> None:
    workspace = Workspace("/w")
    spans = [(float(number * 10), float(number * 10 + 5)) for number in range(500)]
    for span in spans:
        workspace = workspace.with_span(span)
        assert len(workspace.spans) <= MOST_SPANS
    covered = [any(begun <= at <= ended for begun, ended in workspace.spans) for one in spans for at in one]
    assert all(covered)
    assert workspace.spans[-1] == spans[-1]


def test_a_long_time_at_work_among_the_older_stays_covered() -> None:
    workspace = Workspace("/w", spans=((0.0, 1000.0),))
    for number in range(1, MOST_SPANS + 1):
        workspace = workspace.with_span((float(number), float(number)))
    assert workspace.spans[0] == (0.0, 1000.0)


def test_people_are_told_in_a_line() -> None:
    assert left_out_line("SOUL.md") == "SOUL.md changed while an agent worked: /reload takes it in"
