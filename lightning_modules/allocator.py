"""Keep memory that was freed for the next step instead of giving it back to the system.

A step frees and asks for the same large tensors again and again. The C library hands each back to the
system, which then fills every page with zeros anew: a tenth of a step in fp32, a sixth in bf16.
"""

import ctypes
import platform

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4  # of glibc's malloc.h
LARGEST = 2**31 - 1
TOP_PAD_BYTES = 64 * 2**20


def keep_freed_memory() -> bool:
    """Set this process's allocator up for training; returns whether it is one that can be."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    options = ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, LARGEST), (M_TOP_PAD, TOP_PAD_BYTES))
    taken = [mallopt(option, value) for option, value in options]
    return all(taken)
