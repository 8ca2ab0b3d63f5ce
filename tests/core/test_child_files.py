"""What a run leaves outside the database, and when it goes."""

import pytest
from msgspec.structs import replace

from fledge.core.child_files import RemovalMoment, child_file, files_to_remove_at, readable_child_files
from fledge.core.run import Ended, Killed, Ok, Run
from tests.core.samples import AT, RUNS, TERMS
from tests.statements import proves

LEAVES = ("attachments/7", "work/7", "worktrees/7", "/other")


def run(**terms: object) -> Run:
    done = RUNS["completed"]
    return replace(done, terms=replace(TERMS, leaves=LEAVES, **terms))


@pytest.mark.parametrize(
    ("terms", "moment", "gone"),
    [
        ({"cleanup": "keep"}, "cleanup", ("attachments/7", "/other")),
        ({"cleanup": "keep"}, "archive", ("worktrees/7",)),
        ({"cleanup": "keep", "retains": True}, "cleanup", ("/other",)),
        ({"cleanup": "keep", "retains": True}, "archive", ("attachments/7", "worktrees/7")),
        ({"cleanup": "delete"}, "cleanup", ("attachments/7", "worktrees/7", "/other")),
        ({"cleanup": "delete", "retains": True}, "cleanup", ("attachments/7", "worktrees/7", "/other")),
        ({"cleanup": "delete"}, "archive", ("work/7", "worktrees/7")),
        ({"mode": "session"}, "cleanup", ()),
        ({"mode": "session"}, "archive", ()),
    ],
)
def test_what_only_helped_goes_early_and_what_may_hold_work_goes_late(
    terms: dict[str, object], moment: RemovalMoment, gone: tuple[str, ...]
) -> None:
    assert files_to_remove_at(run(**terms), moment) == gone


@pytest.mark.parametrize("terms", [{"cleanup": "keep"}, {"cleanup": "delete"}, {"mode": "session"}])
def test_everything_goes_with_the_session(terms: dict[str, object]) -> None:
    assert files_to_remove_at(run(**terms), "end") == LEAVES


def test_a_thread_that_was_killed_is_cleaned_like_any_other() -> None:
    bound = run(mode="session")
    phase = bound.phase
    dead = replace(bound, phase=replace(phase, ended=Ended(Killed(True), AT, AT)))
    assert files_to_remove_at(dead, "cleanup") == ("attachments/7", "/other")
    alive = replace(bound, phase=replace(phase, ended=Ended(Ok(), AT, AT)))
    assert files_to_remove_at(alive, "cleanup") == ()


@proves("4.resume.9", "A killed run that is kept keeps its attachments until it is archived: it may be resumed")
def test_a_killed_run_keeps_what_it_was_given_until_it_is_archived() -> None:
    phase = run().phase
    killed = replace(run(), phase=replace(phase, ended=Ended(Killed(True), AT, AT)))
    assert files_to_remove_at(killed, "cleanup") == ("/other",)
    assert files_to_remove_at(killed, "archive") == ("attachments/7", "worktrees/7")
    deleted = replace(killed, terms=replace(killed.terms, cleanup="delete"))
    assert "attachments/7" in files_to_remove_at(deleted, "cleanup")


def test_a_run_that_has_not_ended_is_not_killed() -> None:
    going = replace(RUNS["running"], terms=replace(TERMS, leaves=LEAVES, mode="session"))
    assert files_to_remove_at(going, "cleanup") == ()


def test_a_leaf_is_named_after_its_child() -> None:
    assert child_file("work", "agent:main:subagent:7f-1") == "work/7f-1"


def test_a_session_may_read_what_it_was_given_and_its_childrens_own_folders() -> None:
    child = run()
    assert readable_child_files(child, ()) == ("attachments/7",)
    assert readable_child_files(None, (child,)) == ("work/7", "worktrees/7")
    hidden = [replace(RUNS[name], terms=replace(TERMS, leaves=LEAVES)) for name in ("spawning", "archived")]
    assert readable_child_files(None, hidden) == ()
