"""Processes of this machine: which one this is, and whether another one is dead, where that is certain.

A pid means a process only within its pid namespace and until the machine starts again, and is given again to others. So
a process is known by the boot of its machine, its namespaces, its pid and when it began. Only Linux says all of that;
elsewhere nothing is certain.
"""

import os
import sys
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_NAMESPACES: Final = ("pid", "time")
"""The namespaces in which a pid, and the time at which a process began, are the same for two processes."""


def this_machine() -> str:
    """An id shared by all processes that can see whether the others live; empty if that is not known."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        spaces = [os.readlink(_PROC / "self/ns" / name) for name in _NAMESPACES if _has_namespace(name)]
        own = (_PROC / "self/stat").read_text().partition(" ")[0]
    except OSError:
        return ""
    # A /proc of another namespace, as of the host in a container, knows this process by another number.
    return " ".join((boot, *spaces)) if boot and own == str(os.getpid()) else ""


def _has_namespace(name: str) -> bool:
    return name == "pid" or (_PROC / "self/ns" / name).exists()  # namespaces of time came with Linux 5.6


def born(pid: int) -> str | None:
    """When the process of this pid began, as the machine counts; empty if there is none. None: that is not certain."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except (OSError, OverflowError):
        pass  # it is another user's, or cannot be asked; what follows says so
    try:
        # The name of the program, in parentheses, may hold anything.
        state, *fields = (_PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        if state in "ZX" and len(os.listdir(_PROC / str(pid) / "task")) <= 1:
            return ""  # it is dead, and waits for its parent
        return fields[18]
    except (OSError, IndexError, ValueError):
        return None


def is_stopped(pid: int) -> bool:
    """True if the process of this pid is stopped, as by Ctrl-Z; False if it is not, or that cannot be seen."""
    try:
        state = (_PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in "Tt"


def this_program() -> str:
    """The name of the program that this process runs, for people."""
    return Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"


def this_command() -> str:
    """The command of this process, for people: the program, and the command if it has one."""
    verb = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1].isalpha() else ""
    return f"{this_program()} {verb}".strip()
