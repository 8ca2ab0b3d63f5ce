"""A small git repository for tests, made with git itself, without anybody's own settings."""

import os
import shutil
import subprocess
from pathlib import Path


def run_git(folder: Path, *arguments: str) -> str:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    done = subprocess.run(["git", "-C", str(folder), *arguments], env=env, capture_output=True, check=True)
    return done.stdout.decode().strip()


def make_small_repository(folder: Path) -> Path:
    """A repository with one file in one commit."""
    folder.mkdir(parents=True)
    run_git(folder, "init", "-q", "-b", "main")
    (folder / "readme.md").write_text("hello\n")
    commit(folder, "first")
    return folder


def make_repository(folder: Path) -> Path:
    """A repository with two files, a script, a link and a folder, in one commit."""
    folder.mkdir(parents=True)
    run_git(folder, "init", "-q", "-b", "main")
    (folder / "readme.md").write_text("hello\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "code.py").write_text("print()\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("sub/code.py")
    (folder / ".gitignore").write_text("*.log\nartifacts/\n")
    commit(folder, "first")
    return folder


def commit(folder: Path, message: str) -> str:
    run_git(folder, "add", "-A")
    run_git(folder, "commit", "-q", "-m", message)
    return run_git(folder, "rev-parse", "HEAD")


LEADING_OUT = (
    *("alternates", "refs, a link", "a ref, a link", "objects, a link", "a pack, a link", "HEAD, a link"),
    *("packed refs, a link", "included settings", "settings included by included ones", "a pipe"),
)
"""How the files of a repository may lead outside it."""


def lead_out(repo: Path, hidden: Path, how: str) -> str:
    """Let a repository show the commit of another one that is hidden; answers what it then names."""
    theirs, git = hidden / ".git", repo / ".git"
    head = run_git(hidden, "rev-parse", "HEAD")
    match how:
        case "alternates":
            (git / "objects" / "info" / "alternates").write_text(f"{theirs}/objects\n")
            (git / "refs" / "heads" / "main").write_text(f"{head}\n")
            return f"objects/info/alternates leads to {theirs}/objects"
        case "refs, a link":
            _swap(git / "refs" / "heads", theirs / "refs" / "heads")
            return f"refs/heads leads to {theirs}/refs/heads"
        case "a ref, a link":
            _swap(git / "refs" / "heads" / "main", Path("../../../../hidden/.git/refs/heads/main"))
            return "refs/heads/main leads to ../../../../hidden/.git/refs/heads/main"
        case "objects, a link":
            _swap(git / "objects", theirs / "objects")
            return f"objects leads to {theirs}/objects"
        case "a pack, a link":
            run_git(hidden, "gc", "-q")
            (pack,) = (theirs / "objects" / "pack").glob("*.pack")
            for file in (pack, pack.with_suffix(".idx")):
                (git / "objects" / "pack" / file.name).symlink_to(file)
            return "objects/pack/"
        case "HEAD, a link":
            _swap(git / "HEAD", theirs / "HEAD")
            return f"HEAD leads to {theirs}/HEAD"
        case "packed refs, a link":
            (git / "packed-refs").symlink_to(theirs / "packed-refs")
            return f"packed-refs leads to {theirs}/packed-refs"
        case "included settings":
            run_git(repo, "config", "includeIf.gitdir:/.path", str(theirs / "config"))
            return f"config includes {theirs}/config"
        case "settings included by included ones":
            run_git(repo, "config", "include.path", "../shared.config")
            (repo / "shared.config").write_text("[include]\npath = ../hidden/.git/config\n")
            return "config includes ../hidden/.git/config"
        case "a pipe":
            (git / "packed-refs").unlink(missing_ok=True)
            os.mkfifo(git / "packed-refs")
            return "packed-refs is a pipe"
        case _:
            raise AssertionError(how)


def _swap(path: Path, target: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    path.symlink_to(target)
