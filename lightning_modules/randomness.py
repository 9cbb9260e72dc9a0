"""Random numbers that depend on their purpose and on nothing else.

A run has one seed. Each use (initial weights, data order, corruption, dropout of one step) derives its own
seed from it by name, so a change to one use never shifts another. If every token needs its own number
(corruption), the numbers come from a counter-based generator: a hash of (key, epoch, sentence, position),
computed for all tokens at once. The generator has no state, so nothing must be saved. The numbers are the
same for any number of devices, in any worker and after any resume.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: an odd constant that spreads counters
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def derive(seed: int, *purpose: str | int) -> int:
    """Return a seed for one purpose: 63 bits of SHA-256 over the run's seed and the purpose's words."""
    text = "\x1f".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def uniforms(key: int, *counters: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return independent uniform numbers in [0, 1), one for each tuple of counters (broadcast together).

    The same key and counters always give the same number: 53 bits of the SplitMix64 finaliser (Steele, Lea
    and Flood 2014, figure 15), applied once a counter.
    """
    state = np.array([key], dtype=np.uint64)
    for counter in counters:
        state = _mixed((state ^ counter.astype(np.uint64)) + _GOLDEN)
    return (_mixed(state + _GOLDEN) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply a bijection of 64 bits in which every input bit changes every output bit."""
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))
