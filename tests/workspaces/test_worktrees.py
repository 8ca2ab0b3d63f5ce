"""Worktrees of children: as git would make them, without running anything the repository names, and never lost."""

import hashlib
import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from fledge.core.handover import Worktree
from fledge.errors import Refused
from fledge.workspaces.worktrees import MAX_FILE_BYTES, look_at, make_worktree, names_inside, record_of, remove_worktree
from tests.statements import proves
from tests.workspaces.repository import LEADING_OUT, commit, lead_out, make_repository, run_git

LEAF = "worktrees/0123456789abcdef"
BRANCH = "fledge/456789abcdef"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo")


def branches(repo: Path) -> list[str]:
    return run_git(repo, "branch", "--format=%(refname:short)").split()


def left(root: Path, repo: Path) -> tuple[list[str], list[str], list[str]]:
    """What is left of worktrees: in the state folder, in the repository's records, and as branches."""
    return sorted(os.listdir(root / "worktrees")), run_git(repo, "worktree", "list").splitlines()[1:], branches(repo)


NOTHING_LEFT: tuple[list[str], list[str], list[str]] = ([], [], ["main"])


# ---- making ----------------------------------------------------------------------------------------------------------


def test_a_worktree_has_all_files_on_a_branch_of_its_own(root: Path, repo: Path) -> None:
    work = make_worktree(root, LEAF, repo)
    assert work == root / LEAF
    assert sorted(os.listdir(work)) == [".git", ".gitignore", "link", "readme.md", "run.sh", "sub"]
    assert (work / "sub" / "code.py").read_text() == "print()\n"
    assert os.readlink(work / "link") == "sub/code.py"
    assert os.access(work / "run.sh", os.X_OK)
    assert not os.access(work / "readme.md", os.X_OK)
    assert run_git(work, "branch", "--show-current") == BRANCH
    assert run_git(work, "status", "--porcelain") == ""
    assert run_git(repo, "status", "--porcelain") == ""


def test_children_that_are_spawned_at_the_same_moment_have_branches_of_their_own(root: Path, repo: Path) -> None:
    names = ["01a1deec-ebea-7c0b-82d4-b4f817853a78", "01a1deec-ebea-7e7f-a54d-563d33172b3a"]
    for name in names:
        make_worktree(root, f"worktrees/{name}", repo)
    branches = run_git(repo, "branch", "--format=%(refname:short)").split()
    assert branches == ["fledge/563d33172b3a", "fledge/b4f817853a78", "main"]


def test_whoever_works_further_down_has_its_child_there_too(root: Path, repo: Path) -> None:
    assert make_worktree(root, LEAF, repo / "sub") == root / LEAF / "sub"
    (repo / "new").mkdir()
    assert make_worktree(root, "worktrees/f00", repo / "new") == root / "worktrees" / "f00" / "new"
    assert (root / "worktrees" / "f00" / "new").is_dir()


def test_a_child_in_a_worktree_can_have_children_in_worktrees(root: Path, repo: Path) -> None:
    first = make_worktree(root, LEAF, repo)
    (first / "more").write_text("x")
    commit(first, "second")
    second = make_worktree(root, "worktrees/f00", first)
    assert (second / "more").read_text() == "x"


def test_files_are_written_in_batches_of_bounded_size(root: Path, repo: Path) -> None:
    for number in range(30):
        (repo / f"f{number}").write_bytes(bytes([number]) * 1000)
    (repo / "empty").write_bytes(b"")
    commit(repo, "more")
    work = make_worktree(root, LEAF, repo)
    assert [(work / f"f{n}").read_bytes() for n in range(30)] == [bytes([n]) * 1000 for n in range(30)]
    assert (work / "empty").read_bytes() == b""


def test_outside_a_repository_it_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(Refused, match="the workspace is in none"):
        make_worktree(root, LEAF, tmp_path / "plain")
    assert os.listdir(root) == []


def test_without_a_commit_it_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    run_git(tmp_path / "new", "init", "-q")
    with pytest.raises(Refused, match="has none yet"):
        make_worktree(root, LEAF, tmp_path / "new")


def test_a_repository_that_is_too_large_is_refused(root: Path, repo: Path) -> None:
    with pytest.raises(Refused, match="5 of 3 files"):
        make_worktree(root, LEAF, repo, max_files=3)
    assert remove_worktree(root, LEAF)
    assert left(root, repo) == NOTHING_LEFT


def test_a_file_that_is_too_large_is_refused_by_its_name(root: Path, repo: Path) -> None:
    blob = _raw_object(repo, b"blob %d\0" % (MAX_FILE_BYTES + 1), b"its size alone is looked at")
    run_git(repo, "update-index", "--add", "--cacheinfo", f"100644,{blob},sub/large.bin")
    run_git(repo, "commit", "-q", "-m", "a large file")
    with pytest.raises(Refused, match=f"sub/large.bin has {MAX_FILE_BYTES + 1} of {MAX_FILE_BYTES} bytes"):
        make_worktree(root, LEAF, repo)
    assert remove_worktree(root, LEAF)
    assert left(root, repo) == NOTHING_LEFT


# ---- hostile repositories --------------------------------------------------------------------------------------------


def test_nothing_that_the_repository_names_is_run(root: Path, repo: Path, tmp_path: Path) -> None:
    """Hooks, filters, monitors, editors, external differs and pagers, all of which would leave a mark."""
    evil = tmp_path / "evil.sh"
    evil.write_text(f"#!/bin/sh\necho $0 $@ >> {tmp_path}/mark\ncat\n")
    evil.chmod(0o755)
    (repo / ".gitattributes").write_text("* filter=evil diff=evil text\n")
    commit(repo, "attributes")
    hooks = repo / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "reference-transaction", "post-index-change", "post-commit", "pre-auto-gc"):
        shutil.copy(evil, hooks / name)
    for setting in (
        *("filter.evil.smudge", "filter.evil.clean", "filter.evil.process", "diff.evil.command", "diff.external"),
        *("core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "diff.evil.textconv", "gpg.program"),
        "core.alternateRefsCommand",
    ):
        run_git(repo, "config", setting, str(evil))
    run_git(repo, "config", "core.hooksPath", str(hooks))
    (tmp_path / "mark").unlink(missing_ok=True)
    work = make_worktree(root, LEAF, repo)
    (work / "readme.md").write_text("changed")
    assert look_at(root, LEAF, thorough=True) == Worktree(str(work), BRANCH, 0, ("readme.md",))
    assert not remove_worktree(root, LEAF)
    (work / "readme.md").write_text("hello\n")
    assert remove_worktree(root, LEAF)
    assert not (tmp_path / "mark").exists()


@proves("8.files.3", "The same for worktrees")
def test_a_folder_cannot_claim_somebody_elses_repository(root: Path, repo: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / ".git").write_text(f"gitdir: {repo}/.git\n")
    with pytest.raises(Refused, match="does not list the workspace"):
        make_worktree(root, LEAF, mine)
    run_git(repo, "worktree", "add", "-q", str(tmp_path / "theirs"))
    (mine / ".git").write_text((tmp_path / "theirs" / ".git").read_text())
    with pytest.raises(Refused, match="does not list the workspace"):
        make_worktree(root, LEAF, mine)
    (mine / ".git").unlink()
    run_git(mine, "init", "-q")
    (mine / ".git" / "commondir").write_text(f"{repo}/.git\n")
    with pytest.raises(Refused):
        make_worktree(root, LEAF, mine)
    shutil.rmtree(mine / ".git")
    (mine / ".git").symlink_to(repo / ".git")
    with pytest.raises(Refused, match="does not list the workspace"):
        make_worktree(root, LEAF, mine)
    assert os.listdir(root) == []
    assert branches(repo) == ["main", "theirs"]


def test_a_worktree_that_the_repository_knows_may_be_used(root: Path, repo: Path, tmp_path: Path) -> None:
    run_git(repo, "worktree", "add", "-q", str(tmp_path / "linked"))
    assert (make_worktree(root, LEAF, tmp_path / "linked") / "readme.md").exists()


@proves("8.files.3")
@pytest.mark.parametrize("path", ["../escaped", ".git/hooks/post-commit", "sub/../../escaped", "sub/.GIT/config"])
def test_a_tree_with_names_that_lead_out_is_refused(root: Path, repo: Path, path: str, tmp_path: Path) -> None:
    """Such trees cannot be made with git's own tools, so they are written as raw objects."""
    blob = run_git(repo, "hash-object", "-w", "readme.md")
    *folders, name = path.split("/")
    entry = b"100644 " + name.encode() + b"\0" + bytes.fromhex(blob)
    for folder in reversed(folders):
        tree = _raw_tree(repo, entry)
        entry = b"40000 " + folder.encode() + b"\0" + bytes.fromhex(tree)
    tree = _raw_tree(repo, entry)
    run_git(repo, "update-ref", "refs/heads/main", run_git(repo, "commit-tree", "-m", "evil", tree))
    with pytest.raises(Refused):
        make_worktree(root, LEAF, repo)
    assert not (root / "worktrees" / "escaped").exists()
    assert not (root / "escaped").exists()
    remove_worktree(root, LEAF)
    assert sorted(os.listdir(root / "worktrees")) == []


@proves("8.files.9", "No worktree is made of a repository whose own files lead outside it")
@pytest.mark.parametrize("how", LEADING_OUT)
def test_a_repository_that_leads_outside_itself_is_refused(root: Path, repo: Path, tmp_path: Path, how: str) -> None:
    hidden = make_repository(tmp_path / "hidden")
    (hidden / "secret").write_text("the secret")
    commit(hidden, "secret")
    named = lead_out(repo, hidden, how)
    with pytest.raises(Refused) as refused:
        make_worktree(root, LEAF, repo)
    assert refused.value.status == "forbidden"
    assert f"a repository that leads outside itself: .git/{named}" in refused.value.reason
    assert os.listdir(root) == []


def test_links_and_included_settings_that_stay_inside_are_fine(root: Path, repo: Path) -> None:
    git = repo / ".git"
    (git / "refs" / "heads" / "other").symlink_to("main")
    (git / "hooks").mkdir(exist_ok=True)
    (git / "hooks" / "pre-commit").symlink_to("/usr/bin/true")
    run_git(repo, "config", "include.path", "../shared.config")
    run_git(repo, "config", "--add", "include.path", "missing")
    (repo / "shared.config").write_text("[user]\nname = t\n")
    (git / "objects" / "info" / "alternates").write_text("# none\n\n")
    assert (make_worktree(root, LEAF, repo) / "readme.md").read_text() == "hello\n"


def test_settings_that_include_themselves_are_refused(root: Path, repo: Path) -> None:
    run_git(repo, "config", "include.path", "config")
    with pytest.raises(Refused, match="includes too many others"):
        make_worktree(root, LEAF, repo)


def test_a_worktree_whose_repository_leads_outside_by_now_is_not_looked_into_and_stays(
    root: Path, repo: Path, tmp_path: Path
) -> None:
    hidden = make_repository(tmp_path / "hidden")
    work = make_worktree(root, LEAF, repo)
    (work / "new").write_text("x")
    (repo / ".git" / "objects" / "info" / "alternates").write_text(f"{hidden}/.git/objects\n")
    assert look_at(root, LEAF, thorough=True) == Worktree(str(work), BRANCH)
    assert not remove_worktree(root, LEAF)
    (repo / ".git" / "objects" / "info" / "alternates").unlink()
    (work / ".git").write_text(f"gitdir: {hidden}/.git\n")
    assert look_at(root, LEAF, thorough=True) == Worktree(str(work), BRANCH)
    assert not remove_worktree(root, LEAF)


def test_a_tree_that_would_be_listed_without_end_is_refused_once_the_list_is_too_long(root: Path, repo: Path) -> None:
    """Each folder holds the same folder sixteen times: billions of files in a few small objects."""
    blob = run_git(repo, "hash-object", "-w", "readme.md")
    tree = _raw_tree(repo, b"100644 file\0" + bytes.fromhex(blob))
    for _ in range(8):
        names = [b"%02d" % number + b"x" * 200 for number in range(16)]
        tree = _raw_tree(repo, b"".join(b"40000 " + name + b"\0" + bytes.fromhex(tree) for name in names))
    run_git(repo, "update-ref", "refs/heads/main", run_git(repo, "commit-tree", "-m", "a bomb", tree))
    # A process that had all of it in memory would be killed; git that went on to the end would take hours.
    with pytest.raises(Refused, match=r"says more than \d+ bytes"):
        make_worktree(root, LEAF, repo)


def _raw_tree(repo: Path, entry: bytes) -> str:
    return _raw_object(repo, b"tree %d\0" % len(entry), entry)


def _raw_object(repo: Path, head: bytes, content: bytes) -> str:
    data = head + content
    digest = hashlib.sha1(data).hexdigest()
    place = repo / ".git" / "objects" / digest[:2]
    place.mkdir(exist_ok=True)
    (place / digest[2:]).write_bytes(zlib.compress(data))
    return digest


# ---- looking ---------------------------------------------------------------------------------------------------------


def test_what_was_done_in_it_is_seen(root: Path, repo: Path) -> None:
    work = make_worktree(root, LEAF, repo)
    assert look_at(root, LEAF, thorough=False) == Worktree(str(work), BRANCH)
    assert look_at(root, LEAF, thorough=True) == Worktree(str(work), BRANCH, 0)
    (work / "new.py").write_text("x")
    commit(work, "second")
    (work / "readme.md").write_text("changed")
    (work / "sub" / "code.py").unlink()
    (work / "run.sh").chmod(0o644)
    (work / "untracked").write_text("x")
    (work / "noise.log").write_text("ignored")
    (work / "staged").write_text("x")
    run_git(work, "add", "staged")
    changed = ("readme.md", "run.sh", "staged", "sub/code.py", "untracked")
    assert look_at(root, LEAF, thorough=True) == Worktree(str(work), BRANCH, 1, changed)


def test_what_is_handed_over_counts_as_work_though_the_repository_ignores_it(root: Path, repo: Path) -> None:
    work = make_worktree(root, LEAF, repo / "sub")
    (work / "artifacts").mkdir()
    (work / "artifacts" / "report").write_text("x")
    seen = look_at(root, LEAF, thorough=True)
    assert seen is not None
    assert seen.changed == ("sub/artifacts/report",)
    assert not remove_worktree(root, LEAF)


def test_what_lies_behind_a_link_in_it_is_not_told(root: Path, repo: Path, tmp_path: Path) -> None:
    """git itself follows a link that a folder was swapped for after it had looked."""
    work = make_worktree(root, LEAF, repo)
    (tmp_path / "outside").mkdir()
    (work / "out").symlink_to(tmp_path / "outside")
    (work / "new").mkdir()
    assert names_inside(work, {"out/secret", "out/deep/er", "new/file", "top"}) == {"out", "new/file", "top"}


def test_many_changes_are_counted(root: Path, repo: Path) -> None:
    work = make_worktree(root, LEAF, repo)
    for number in range(25):
        (work / f"new{number:02}").write_text("x")
    seen = look_at(root, LEAF, thorough=True)
    assert seen is not None
    assert (len(seen.changed), seen.more_changed) == (20, 5)


def test_one_that_is_not_there_or_cannot_be_looked_at_is_told_as_such(root: Path, repo: Path) -> None:
    assert look_at(root, LEAF, thorough=True) is None
    work = make_worktree(root, LEAF, repo)
    (work / ".git").unlink()
    assert look_at(root, LEAF, thorough=True) == Worktree(str(work), BRANCH)


# ---- removing --------------------------------------------------------------------------------------------------------


def test_one_without_work_goes_with_its_branch_and_the_repositorys_record(root: Path, repo: Path) -> None:
    make_worktree(root, LEAF, repo)
    assert remove_worktree(root, LEAF)
    assert left(root, repo) == NOTHING_LEFT
    assert remove_worktree(root, LEAF)


@pytest.mark.parametrize("work_in", ["changed", "untracked", "staged", "commit", "detached"])
def test_one_with_work_stays_as_it_is(root: Path, repo: Path, work_in: str) -> None:
    work = make_worktree(root, LEAF, repo)
    match work_in:
        case "changed":
            (work / "readme.md").write_text("changed")
        case "untracked":
            (work / "new").write_text("x")
        case "staged":
            (work / "new").write_text("x")
            run_git(work, "add", "new")
        case _:
            if work_in == "detached":
                run_git(work, "checkout", "-q", "--detach")
            (work / "new").write_text("x")
            commit(work, "second")
    assert not remove_worktree(root, LEAF)
    assert work.is_dir()
    assert record_of(root, LEAF) is not None
    assert branches(repo) == [BRANCH, "main"]
    assert not remove_worktree(root, LEAF)


def test_one_whose_commits_were_merged_goes(root: Path, repo: Path) -> None:
    work = make_worktree(root, LEAF, repo)
    (work / "new").write_text("x")
    commit(work, "second")
    run_git(repo, "merge", "-q", BRANCH)
    assert remove_worktree(root, LEAF)
    assert left(root, repo) == NOTHING_LEFT
    assert (repo / "new").read_text() == "x"


def test_ignored_files_are_no_work(root: Path, repo: Path) -> None:
    work = make_worktree(root, LEAF, repo)
    (work / "noise.log").write_text("x")
    assert remove_worktree(root, LEAF)
    assert left(root, repo) == NOTHING_LEFT


def test_one_whose_repository_is_gone_stays(root: Path, repo: Path) -> None:
    work = make_worktree(root, LEAF, repo)
    shutil.rmtree(repo)
    assert not remove_worktree(root, LEAF)
    assert (work / "readme.md").exists()


def test_only_its_own_record_is_removed_from_the_repository(root: Path, repo: Path, tmp_path: Path) -> None:
    run_git(repo, "worktree", "add", "-q", str(tmp_path / "theirs"))
    shutil.rmtree(tmp_path / "theirs")
    make_worktree(root, LEAF, repo)
    assert remove_worktree(root, LEAF)
    assert os.listdir(repo / ".git" / "worktrees") == ["theirs"]


@proves("8.files.3")
def test_links_in_a_worktree_lead_nowhere_when_it_is_removed(root: Path, repo: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("precious")
    work = make_worktree(root, LEAF, repo)
    (work / "out.log").symlink_to(outside)
    assert remove_worktree(root, LEAF)
    assert (outside / "file").read_text() == "precious"


@pytest.mark.parametrize("said", ["", "{", '{"repository": 1}'])
def test_one_whose_record_cannot_be_read_stays_while_its_files_are_there(root: Path, repo: Path, said: str) -> None:
    work = make_worktree(root, LEAF, repo)
    (root / f"{LEAF}.json").write_text(said)
    assert not remove_worktree(root, LEAF)
    assert (work / "readme.md").exists()
    shutil.rmtree(root / LEAF)
    assert remove_worktree(root, LEAF)
    assert os.listdir(root / "worktrees") == []


# ---- crashes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ["make", "remove"])
def test_whatever_a_crash_leaves_of_making_or_removing_is_removed_afterwards(tmp_path: Path, act: str) -> None:
    """A process is ended before each thing it does to the disk; see `crashing`."""
    command = [sys.executable, "-m", "tests.workspaces.crashing", act, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.stderr, done.returncode) == ("", 0)
    assert int(done.stdout) > 10
