"""Kill a process right before its n-th system call that may change the disk, as a debugger would: by ptrace.

A kill between two calls of Python would miss what SQLite does inside one of them. Calls are counted from the moment
that the process asks for it (`begin_counting`), over all of its threads; of equal calls in a row, such as the writes of
many pages, all of them or only the first.
"""

import ctypes
import os
import platform
import signal
from collections.abc import Callable
from typing import Final

TRACEME, CONTINUE_TO_CALL, SET_OPTIONS, CALL_INFO = 0, 24, 0x4200, 0x420E
OPTIONS: Final = 0x1 | 0x8 | 0x100000
"""Tell stops at system calls from others, trace new threads too, and kill the process if its tracer dies."""
ALL_THREADS: Final = 0x40000000
AT_CALL: Final = signal.SIGTRAP | 0x80
ENTRY: Final = 1
O_CREAT: Final = 0x40

CHANGES: Final[dict[str, dict[str, int]]] = {
    "x86_64": {"openat": 257, "write": 1, "pwrite64": 18, "ftruncate": 77, "fsync": 74, "fdatasync": 75}
    | {"rename": 82, "renameat2": 316, "mkdir": 83, "unlink": 87, "unlinkat": 263, "fallocate": 285},
    "aarch64": {"openat": 56, "write": 64, "pwrite64": 68, "ftruncate": 46, "fsync": 82, "fdatasync": 83}
    | {"renameat": 38, "renameat2": 276, "mkdirat": 34, "unlinkat": 35, "fallocate": 47},
}
"""System calls that may change the disk, and their numbers on the machines that are known here."""
NUMBERS: Final = CHANGES.get(platform.machine(), {})

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


class _Info(ctypes.Structure):
    """`struct ptrace_syscall_info` of an entry."""

    _fields_ = (
        ("op", ctypes.c_uint8),
        ("arch", ctypes.c_uint32),
        ("instruction", ctypes.c_uint64),
        ("stack", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
        ("arguments", ctypes.c_uint64 * 6),
    )


def _ptrace(request: int, pid: int, address: int = 0, data: int = 0) -> None:
    if _libc.ptrace(request, pid, address, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace: {os.strerror(number)}")


def is_permitted() -> bool:
    """True if processes can be traced here."""
    try:
        return bool(NUMBERS) and not killed_at(1, lambda: None)
    except (OSError, RuntimeError):
        return False


def begin_counting() -> None:
    """The process's system calls count from here on."""
    signal.raise_signal(signal.SIGUSR1)


def killed_at(nth: int, deed: Callable[[], None], every: bool = False) -> bool:
    """Do it in a process that dies right before the n-th call that counts; False if it got to its end. `every`: equal
    calls in a row count each."""
    pid = os.fork()
    if pid == 0:
        try:
            _ptrace(TRACEME, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
            deed()
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
    if not os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]):
        raise OSError("a process may not be traced here")
    _ptrace(SET_OPTIONS, pid, 0, OPTIONS)
    _ptrace(CONTINUE_TO_CALL, pid)
    code = _follow(pid, nth, every)
    if code not in (0, -signal.SIGKILL):
        raise RuntimeError(f"call {nth}: the process ended with {code}")
    return code != 0


def _follow(pid: int, nth: int, every: bool) -> int:
    """Let the process run until it ends, by itself or at that call; its exit code."""
    counts, left, last = False, nth, 0
    while True:
        thread, status = os.waitpid(-1, ALL_THREADS)
        if not os.WIFSTOPPED(status):
            if thread == pid:
                return os.waitstatus_to_exitcode(status)
            continue
        stopped_by, passed_on = os.WSTOPSIG(status), 0
        if stopped_by == AT_CALL:
            number = _change(thread) if counts else 0
            left -= number not in (0, 0 if every else last)
            last = number or last
            if left == 0:
                os.kill(pid, signal.SIGKILL)
                continue
        elif stopped_by == signal.SIGUSR1:
            counts = True
        elif stopped_by not in (signal.SIGTRAP, signal.SIGSTOP):  # which only say that a thread is new
            passed_on = stopped_by
        _go_on(thread, passed_on)


def _go_on(thread: int, passed_on: int) -> None:
    try:
        _ptrace(CONTINUE_TO_CALL, thread, 0, passed_on)
    except ProcessLookupError:
        return  # it was killed meanwhile


def _change(thread: int) -> int:
    """The number of the call that the thread is about to make, if that may change the disk; else 0."""
    info = _Info()
    try:
        _ptrace(CALL_INFO, thread, ctypes.sizeof(info), ctypes.addressof(info))
    except ProcessLookupError:
        return 0
    reads = info.number == NUMBERS["openat"] and not info.arguments[2] & O_CREAT
    return int(info.number) if info.op == ENTRY and info.number in NUMBERS.values() and not reads else 0
