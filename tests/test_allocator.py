"""Freed memory is kept: in the end a tensor of the same size costs no new pages."""

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
import torch
from lightning_modules.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
faults = []
for _ in range(16):  # until the heap has a hole of that size
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(15_000_000)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(faults[-1])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is glibc's")
def test_the_pages_of_a_freed_tensor_are_used_again():
    faults = {
        how: int(
            subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True).stdout
        )
        for how in ("keep", "give back")
    }
    pages = 15_000_000 * 4 // 4096
    assert faults["keep"] < pages // 100
    assert faults["give back"] > pages // 600  # huge pages are 512 times as large
