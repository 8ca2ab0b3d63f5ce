"""What is hidden and guarded, by names and paths."""

import pytest

from fledge.core.protected import (
    GUARDED_AT_HOME,
    HIDDEN_AT_HOME,
    Protected,
    is_broad,
    is_within,
    protected_at,
)


@pytest.mark.parametrize(
    ("inner", "guarded"),
    [
        (".git", True),
        (".git/config", True),
        (".git/hooks/post-checkout", True),
        ("vendor/lib/.git/config", True),
        (".GIT/config", True),
        ("./.git/config", True),
        (".envrc", True),
        ("sub/.envrc", True),
        (".mcp.json", True),
        ("fledge.json5", True),
        ("agents/reviewer.md", True),
        ("Agents/Reviewer.MD", True),
        ("agents/reviewer.py", False),
        ("agents/deep/reviewer.md", False),
        ("docs/agents/reviewer.md", False),
        ("agents", False),
        (".gitignore", False),
        (".github/workflows/x.yml", False),
        ("src/main.py", False),
        (".bashrc", False),
        ("", False),
    ],
)
def test_what_is_guarded_by_its_name(inner: str, guarded: bool) -> None:
    assert Protected().guards(inner) is guarded


def test_the_settings_may_leave_a_place_unguarded_and_no_other() -> None:
    protected = protected_at("/home/me", unguarded=(".git", "sub/.envrc"))
    free = [protected.guards(inner) for inner in (".git", ".git/config", "sub/.envrc")]
    kept = [protected.guards(inner) for inner in (".envrc", "sub/.git/config", ".gitx/.git")]
    assert (free, kept) == ([False] * 3, [True] * 3)


def test_what_is_protected_at_home_is_named_by_its_whole_path() -> None:
    protected = protected_at("/home/me", hidden=("/state",))
    assert len(protected.hidden) == len(HIDDEN_AT_HOME) + 1
    assert {"/home/me/.ssh", "/home/me/.config/fledge", "/home/me/.netrc", "/state"} <= set(protected.hidden)
    assert len(protected.guarded) == len(GUARDED_AT_HOME) + 1
    assert {"/home/me/.bashrc", "/home/me/.config/autostart", "/home/me/.gitconfig", "/etc"} <= set(protected.guarded)
    assert protected.home == "/home/me"


@pytest.mark.parametrize(
    ("workspace", "broad"),
    [("/", True), ("/home", True), ("/home/me", True), ("/home/me/work", False), ("/home/m", False), ("/srv", False)],
)
def test_a_workspace_is_broad_if_it_holds_the_home_folder(workspace: str, broad: bool) -> None:
    assert is_broad(workspace, "/home/me") is broad


@pytest.mark.parametrize("home", ["", "/", "/nonexistent"])
def test_the_whole_machine_is_broad_wherever_home_is(home: str) -> None:
    assert is_broad("/", home)
    assert not is_broad("/srv", home)


@pytest.mark.parametrize(
    ("path", "folder", "within"),
    [("/a", "/a", True), ("/a/b", "/a", True), ("/ab", "/a", False), ("/a", "/a/b", False), ("/a", "/", True)],
)
def test_one_path_is_within_another(path: str, folder: str, within: bool) -> None:
    assert is_within(path, folder) is within


def test_the_outermost_places_of_code_in_a_workspace_are_guarded_there_and_no_setting_changes_that() -> None:
    code = (
        "/w/.venv",
        "/w/.venv/bin",
        "/w",
        "/",
        "/usr/bin",
        "/w/src/fledge",
        "/w/src/fledge-more",
        "/w/src/sitecustomize.py",
    )
    protected = protected_at("/h", unguarded=(".venv",), code=code, linking=("/", "/w", "/w/.venv/bin"))
    assert protected.linking_in("/w") == ["/w"]
    assert protected.linking_in("/w/src") == []
    assert protected.code_in("/w") == ["/w/.venv", "/w/src/fledge", "/w/src/fledge-more", "/w/src/sitecustomize.py"]
    assert protected.code_in("/w/src") == ["/w/src/fledge", "/w/src/fledge-more", "/w/src/sitecustomize.py"]
    assert protected.code_in("/") == ["/usr/bin", "/w"]
    assert protected.code_in("/w/.venv") == ["/w/.venv/bin"]
    assert protected.code_in("/elsewhere") == []
    assert protected.startup_in("/w") == ["/w/src/sitecustomize.py"]
