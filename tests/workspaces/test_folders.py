"""Host-owned folders: private, filled once, removed whole, and nothing outside their root is ever touched."""

import os
import stat
import threading
from pathlib import Path

import pytest

from fledge.errors import BadInput
from fledge.workspaces.folders import make_folder, remove_folder, split_leaf, write_file
from tests.statements import proves

LEAF = "work/7f-1"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "state"
    root.mkdir()
    return root


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """What must still be there after whatever is done inside the root."""
    outside = tmp_path / "outside"
    (outside / "below").mkdir(parents=True)
    (outside / "below" / "file").write_text("precious")
    return outside


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def is_whole(precious: Path) -> bool:
    return (precious / "below" / "file").read_text() == "precious"


@proves("3.files.4", "They are staged in host-owned state, 0700 and 0600")
def test_a_folder_and_what_is_written_in_it_are_private(root: Path) -> None:
    made = make_folder(root, LEAF)
    write_file(root, LEAF, "a", b"xyz")
    assert made == root / "work" / "7f-1"
    assert (mode(root / "work"), mode(made), mode(made / "a")) == (0o700, 0o700, 0o600)
    assert (made / "a").read_bytes() == b"xyz"


def test_what_is_there_is_not_made_or_written_again(root: Path) -> None:
    made = make_folder(root, LEAF)
    write_file(root, LEAF, "a", b"xyz")
    with pytest.raises(FileExistsError):
        make_folder(root, LEAF)
    with pytest.raises(FileExistsError):
        write_file(root, LEAF, "a", b"other")
    assert (made / "a").read_bytes() == b"xyz"


@pytest.mark.parametrize(
    "leaf", ["", "work", "work/", "work/..", "work/a/b", "other/a", "/work/a", "work/.a", "work/a\n"]
)
def test_only_plain_names_in_our_folders_are_leaves(root: Path, leaf: str) -> None:
    for act in (split_leaf, lambda one: make_folder(root, one), lambda one: remove_folder(root, one)):
        with pytest.raises(BadInput, match="leaf"):
            act(leaf)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\x00"])
def test_only_plain_names_are_written(root: Path, name: str) -> None:
    with pytest.raises(BadInput, match="name"):
        write_file(root, LEAF, name, b"")


def test_a_link_in_place_of_our_folder_is_not_followed(root: Path, precious: Path) -> None:
    (root / "work").symlink_to(precious)
    with pytest.raises(OSError, match=r".*"):
        make_folder(root, LEAF)
    with pytest.raises(OSError, match=r".*"):
        remove_folder(root, "work/below")
    assert is_whole(precious)
    assert sorted(os.listdir(precious)) == ["below"]


@proves("8.files.2", "The same for attachments and artifacts")
def test_a_link_in_place_of_a_file_is_not_written_through(root: Path, precious: Path) -> None:
    made = make_folder(root, LEAF)
    (made / "a").symlink_to(precious / "below" / "file")
    (made / "new").symlink_to(precious / "new")
    for name in ("a", "new"):
        with pytest.raises(FileExistsError):
            write_file(root, LEAF, name, b"evil")
    assert is_whole(precious)
    assert not (precious / "new").exists()


# ---- removing --------------------------------------------------------------------------------------------------------


@proves("3.files.8", "Removal deletes only what really lies inside its own root")
def test_everything_in_a_folder_goes_links_as_links(root: Path, precious: Path) -> None:
    made = make_folder(root, LEAF)
    (made / "a" / "b").mkdir(parents=True)
    (made / "a" / "b" / "file").write_text("x")
    (made / "a" / "out").symlink_to(precious)
    (made / "file").symlink_to(precious / "below" / "file")
    os.link(precious / "below" / "file", made / "hard")
    os.mkfifo(made / "pipe")
    remove_folder(root, LEAF)
    assert not made.exists()
    assert is_whole(precious)


def test_what_is_gone_already_is_fine(root: Path) -> None:
    remove_folder(root, LEAF)
    make_folder(root, LEAF)
    remove_folder(root, LEAF)
    remove_folder(root, LEAF)
    assert os.listdir(root / "work") == []


def test_a_link_in_place_of_the_folder_is_removed_and_its_target_stays(root: Path, precious: Path) -> None:
    make_folder(root, LEAF)
    os.rename(root / LEAF, root / "work" / "moved")
    (root / LEAF).symlink_to(precious)
    remove_folder(root, LEAF)
    assert not (root / LEAF).is_symlink()
    assert is_whole(precious)


def test_folders_that_were_locked_are_removed(root: Path) -> None:
    made = make_folder(root, LEAF)
    (made / "locked" / "below").mkdir(parents=True)
    (made / "locked" / "below" / "file").write_text("x")
    (made / "locked" / "below").chmod(0)
    (made / "locked").chmod(0o500)
    remove_folder(root, LEAF)
    assert not made.exists()


def test_no_depth_is_too_deep(root: Path) -> None:
    held = os.open(make_folder(root, LEAF), os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=held)
        inner = os.open("d", os.O_RDONLY, dir_fd=held)
        os.close(held)
        held = inner
    os.close(held)
    remove_folder(root, LEAF)
    assert os.listdir(root / "work") == []


@proves("3.files.8")
def test_a_folder_that_is_swapped_for_a_link_while_it_is_removed_leads_nowhere(root: Path, precious: Path) -> None:
    """Somebody keeps swapping folders for links to the outside, and back, all the while."""
    over = threading.Event()

    def swap(made: Path) -> None:
        while not over.is_set():
            for number in range(20):
                try:
                    os.rename(made / f"f{number}", made / "hidden")
                    os.symlink(precious, made / f"f{number}")
                    os.unlink(made / f"f{number}")
                    os.rename(made / "hidden", made / f"f{number}")
                except OSError:
                    continue

    for _ in range(20):
        made = make_folder(root, LEAF)
        for number in range(20):
            (made / f"f{number}" / "below").mkdir(parents=True)
            (made / f"f{number}" / "below" / "file").write_text("x")
        over.clear()
        racer = threading.Thread(target=swap, args=(made,))
        racer.start()
        try:
            for _ in range(50):
                try:
                    remove_folder(root, LEAF)
                    break
                except OSError:
                    continue  # it was swapped under our hands: told as an error, and tried again
        finally:
            over.set()
            racer.join()
        remove_folder(root, LEAF)
        assert not made.exists()
        assert is_whole(precious)
