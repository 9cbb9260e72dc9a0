"""A user without root's rights, also where root runs the tests."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_VERSION = 0x20080522
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1 << 1, 1 << 2
"""Capabilities of Linux: root may read and write whatever the permissions of a file say."""


@contextmanager
def permissions_hold() -> Iterator[None]:
    """In the block, and in this thread, permissions of files hold for root too; for others they always do."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, twice
    if libc.capget(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    before = sets[0]
    try:
        sets[0] = before & ~(_DAC_OVERRIDE | _DAC_READ_SEARCH)
        libc.capset(header, sets)
        yield
    finally:
        sets[0] = before
        libc.capset(header, sets)
