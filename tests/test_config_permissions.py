"""The files that hold a person's rules: private, whole or not at all, never a link, never somebody else's."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from fledge.config.permissions import FOLDER, MOST_BYTES, MOST_RULES, PermissionRules, forget, keep, read_rules, revoke
from fledge.core.permission import Offer, Permission, permission
from fledge.errors import BadInput, NotFound, Refused
from fledge.plain_file import write_private
from tests.statements import proves


def rule(words: str = "make test", at: float = 1.0) -> Permission:
    return permission(Offer(tuple(words.split()), "/home/me/project", "main", paths=False), at, "me")


def file_of(user: Path, kept: Permission) -> Path:
    return user / FOLDER / f"{kept.id}.json"


def test_rules_are_kept_one_file_each_for_their_owner_alone_and_read_oldest_first(tmp_path: Path) -> None:
    user = tmp_path / "user"
    assert read_rules(user) == PermissionRules()
    later, first = rule("make test", 2.0), rule("ls", 1.0)
    assert [keep(user, one) for one in (later, first, later)] == [True, True, False]
    assert read_rules(user) == PermissionRules((first, later))
    modes = {os.stat(path).st_mode & 0o777 for path in (file_of(user, first), file_of(user, later))}
    assert (modes, os.stat(user / FOLDER).st_mode & 0o777) == ({0o600}, 0o700)
    assert keep(user, replace(first, made_at=9.0, made_by="you")) is False
    assert read_rules(user).rules[0] == first


def test_a_rule_is_revoked_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    made = [rule(f"make {number}") for number in range(40)]
    for one in made:
        keep(tmp_path, one)
    with pytest.raises(NotFound, match="no rule is named 'zz'"):
        revoke(tmp_path, "zz")
    with pytest.raises(NotFound, match=r"rules are named ''"):
        revoke(tmp_path, "")
    assert revoke(tmp_path, made[7].id[:11]) == made[7]
    assert len(read_rules(tmp_path).rules) == 39
    forget(tmp_path, made[7])


@proves("8.permissions.12")
def test_a_rule_of_an_earlier_fledge_with_free_paths_is_listed_without_effect_and_can_be_revoked(
    tmp_path: Path,
) -> None:
    old = permission(Offer(("git", "checkout", "--"), "/home/me/project", "main"), 1.0, "me")
    fields = ("id", "words", "folder", "agent", "children", "made_at", "made_by")
    write_private(file_of(tmp_path, old), msgspec.json.encode({name: getattr(old, name) for name in fields}).decode())
    assert read_rules(tmp_path) == PermissionRules((replace(old, counts=False),))
    assert read_rules(tmp_path, ("git checkout --",)) == PermissionRules((old,))
    assert keep(tmp_path, rule())
    assert revoke(tmp_path, old.id) == replace(old, counts=False)
    assert read_rules(tmp_path) == PermissionRules((rule(),))


def link_to(user: Path, kept: Permission) -> None:
    path = file_of(user, kept)
    path.rename(user / "elsewhere.json")
    path.symlink_to(user / "elsewhere.json")


def swap_for(kind: Callable[[Path], None]) -> Callable[[Path, Permission], None]:
    def swap(user: Path, kept: Permission) -> None:
        file_of(user, kept).unlink()
        kind(file_of(user, kept))

    return swap


def write(words: bytes) -> Callable[[Path, Permission], None]:
    def written(user: Path, kept: Permission) -> None:
        file_of(user, kept).write_bytes(words)

    return written


def edit(old: bytes, new: bytes) -> Callable[[Path, Permission], None]:
    def edited(user: Path, kept: Permission) -> None:
        path = file_of(user, kept)
        assert old in path.read_bytes()
        path.write_bytes(path.read_bytes().replace(old, new))

    return edited


def move_folder(user: Path, kept: Permission) -> None:
    (user / FOLDER).rename(user / "other")
    (user / FOLDER).symlink_to(user / "other")


@proves("8.permissions.8")
@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (link_to, "must be a regular file, not a link; it does not count: remove it"),
        (swap_for(os.mkfifo), "must be a regular file, not a link"),
        (swap_for(os.mkdir), "must be a regular file, not a link"),
        (write(b""), "must be a rule in JSON"),
        (write(b"\xff\xfe"), "must be a rule in JSON"),
        (write(b"[" * 100_000), "must be a rule in JSON"),
        (write(b'{"id":"' + b"a" * MOST_BYTES), "must be a rule in JSON"),
        (edit(b'"paths":false', b'"paths":true'), "must be a rule as fledge wrote it"),
        (edit(b'"make","test"', b'"make"'), "must be a rule as fledge wrote it"),
        (edit(b"/home/me/project", b"/home/me"), "must be a rule as fledge wrote it"),
        (edit(b'"children":false', b'"children":true'), "must be a rule as fledge wrote it"),
        (lambda user, kept: file_of(user, kept).rename(user / FOLDER / "x.json") and None, "must be a rule as fledge"),
        (lambda user, kept: file_of(user, kept).chmod(0o620), "no other user may have write access"),
        (lambda user, kept: (user / FOLDER).chmod(0o777), "no other user may have write access; no rule in it counts"),
        (move_folder, "no rule in it counts"),
    ],
)
def test_what_is_no_rule_or_could_be_somebody_elses_does_not_count(
    tmp_path: Path, harm: Callable[[Path, Permission], None], why: str
) -> None:
    kept = rule()
    keep(tmp_path, kept)
    harm(tmp_path, kept)
    found = read_rules(tmp_path)
    assert found.rules == ()
    (broken,) = found.broken
    assert why in str(broken)
    with pytest.raises(BadInput) as refused:
        keep(tmp_path, rule("ls"))
    assert str(refused.value) == str(broken)
    with pytest.raises(NotFound):
        revoke(tmp_path, kept.id)


def test_a_draft_that_a_crash_left_is_no_rule(tmp_path: Path) -> None:
    keep(tmp_path, rule())
    (tmp_path / FOLDER / ".0123.json.77").write_text("{")
    (tmp_path / FOLDER / ".0123.json").write_text("{")
    assert read_rules(tmp_path) == PermissionRules((rule(),))


def test_more_rules_than_are_read_are_refused(tmp_path: Path) -> None:
    for number in range(MOST_RULES):
        keep_unchecked(tmp_path, rule(f"make {number}"))
    with pytest.raises(Refused, match=f"there are {MOST_RULES} rules already: revoke some"):
        keep(tmp_path, rule())
    keep_unchecked(tmp_path, rule())
    found = read_rules(tmp_path)
    assert len(found.rules) == MOST_RULES
    assert "more do not count (got 501)" in str(found.broken[0])


def keep_unchecked(user: Path, kept: Permission) -> None:
    """As another process would at the same moment."""
    write_private(file_of(user, kept), msgspec.json.encode(kept).decode())


def test_a_rule_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "user").write_text("not a folder")
    with pytest.raises(BadInput, match=r"Not a directory.*no rule in it counts"):
        keep(tmp_path / "user", rule())
    (tmp_path / "full").mkdir()
    with pytest.raises(Refused, match=r"the rule cannot be kept in .*/full/permissions: File name too long"):
        keep(tmp_path / "full", replace(rule(), id="x" * 300))
