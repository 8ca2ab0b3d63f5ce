"""What a child hands over is found where it put it, and nowhere else."""

import hashlib
import os
import threading
from pathlib import Path

import pytest

from fledge.core.handover import Artifact, Handover
from fledge.workspaces.artifacts import DIGEST_CHARS, find_artifacts
from tests.statements import proves


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    (work / "artifacts" / "sub").mkdir(parents=True)
    return work


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGEST_CHARS]


@proves("3.files.6")
def test_files_are_listed_by_name_with_size_and_digest(workspace: Path) -> None:
    (workspace / "artifacts" / "b.md").write_bytes(b"bee")
    (workspace / "artifacts" / "sub" / "a.txt").write_bytes(b"")
    found = find_artifacts(workspace, "artifacts", digests=True)
    files = (Artifact("b.md", 3, digest(b"bee")), Artifact("sub/a.txt", 0, digest(b"")))
    assert found == Handover(str(workspace / "artifacts"), files)
    assert find_artifacts(workspace, "artifacts", digests=False).artifacts == (
        Artifact("b.md", 3),
        Artifact("sub/a.txt", 0),
    )


def test_nothing_is_handed_over_if_there_is_no_folder_or_nothing_in_it(workspace: Path) -> None:
    assert find_artifacts(workspace, "artifacts", True) == Handover()
    assert find_artifacts(workspace, "artifacts/7f", True) == Handover()
    assert find_artifacts(workspace / "nowhere", "artifacts", True) == Handover()


def test_only_the_first_fifty_are_named_and_the_rest_is_counted(workspace: Path) -> None:
    for number in range(53):
        (workspace / "artifacts" / f"{number:02}").write_text("x")
    found = find_artifacts(workspace, "artifacts", True)
    assert (len(found.artifacts), found.more, found.artifacts[-1].name) == (50, 3, "49")


def test_links_pipes_and_what_they_lead_to_are_not_handed_over(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (workspace / "artifacts" / "link").symlink_to(tmp_path / "secret")
    (workspace / "artifacts" / "folder").symlink_to(tmp_path)
    os.mkfifo(workspace / "artifacts" / "pipe")
    assert find_artifacts(workspace, "artifacts", True) == Handover()


def test_a_folder_that_is_a_link_out_of_the_workspace_is_not_looked_into(workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (workspace / "artifacts" / "sub").rmdir()
    (workspace / "artifacts").rmdir()
    (workspace / "artifacts").symlink_to(outside)
    assert find_artifacts(workspace, "artifacts", True) == Handover()


def test_names_that_are_not_unicode_are_told_as_such(workspace: Path) -> None:
    with open(os.fsencode(workspace / "artifacts") + b"/bad\xff\n", "wb") as file:
        file.write(b"x")
    (found,) = find_artifacts(workspace, "artifacts", True).artifacts
    assert found.name.encode()
    assert found.name.startswith("bad")


@proves("8.files.2")
def test_a_folder_that_is_swapped_for_a_link_meanwhile_shows_nothing_from_outside(
    workspace: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (workspace / "artifacts" / "sub" / "own").write_text("own")
    over = threading.Event()

    def swap() -> None:
        sub = workspace / "artifacts" / "sub"
        while not over.is_set():
            os.rename(sub, workspace / "hidden")
            os.symlink(outside, sub)
            os.unlink(sub)
            os.rename(workspace / "hidden", sub)

    racer = threading.Thread(target=swap)
    racer.start()
    try:
        names = {one.name for _ in range(300) for one in find_artifacts(workspace, "artifacts", True).artifacts}
    finally:
        over.set()
        racer.join()
    assert names <= {"sub/own"}
