"""Folders without documents are looked at once, and again after every change in them."""

import os
from pathlib import Path

from fledge.workspaces.documents import SETTLED_NS, BareFolders


def age(folder: Path, ns: int) -> None:
    """Let the folder's last change be so long ago."""
    at = os.stat(folder).st_mtime_ns - ns
    os.utime(folder, ns=(at, at))


def test_a_document_that_is_made_is_seen_however_often_there_was_none(tmp_path: Path) -> None:
    bare = BareFolders()
    age(tmp_path, 2 * SETTLED_NS)
    assert [bare.has_none(str(tmp_path)) for _ in range(2)] == [True, True]
    (tmp_path / "notes.txt").write_text("no document")
    assert bare.has_none(str(tmp_path))
    (tmp_path / "AGENTS.md").write_text("Be brief.")
    assert not bare.has_none(str(tmp_path))
    (tmp_path / "AGENTS.md").unlink()
    assert bare.has_none(str(tmp_path))


def test_a_change_in_the_same_tick_as_the_last_one_is_seen(tmp_path: Path) -> None:
    bare = BareFolders()
    changed_ns = os.stat(tmp_path).st_mtime_ns
    assert bare.has_none(str(tmp_path))
    (tmp_path / "AGENTS.md").write_text("Be brief.")
    os.utime(tmp_path, ns=(changed_ns, changed_ns))
    assert not bare.has_none(str(tmp_path))


def test_a_link_of_that_name_and_a_folder_that_is_gone_are_left_to_the_reader(tmp_path: Path) -> None:
    bare = BareFolders()
    (tmp_path / "AGENTS.md").symlink_to(tmp_path / "nowhere")
    assert not bare.has_none(str(tmp_path))
    assert not bare.has_none(str(tmp_path / "gone"))
