"""A small git repository for tests, made with git itself, without anybody's own settings."""

import os
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
