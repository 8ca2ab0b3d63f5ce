"""Descriptors that a forked child must not keep: the lock of a folder and the sockets of its holder.

A forked child that runs no other program has copies of all descriptors of its parent. With a copy of the lock the
folder would stay locked after its holder's death; with a copy of a connection, no client would notice that death. So in
the child each of these becomes `/dev/null`; the number stays in use, because objects there still close it.
"""

import os

_own: set[int] = set()


def keep_from_children(descriptor: int) -> None:
    """Replace this descriptor in forked children, until `forget`."""
    _own.add(descriptor)


def forget(descriptor: int) -> None:
    """The descriptor is about to be closed."""
    _own.discard(descriptor)


def _in_child() -> None:
    if not _own:
        return
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in _own:
        os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)
    _own.clear()


os.register_at_fork(after_in_child=_in_child)
