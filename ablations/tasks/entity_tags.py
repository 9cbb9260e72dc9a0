"""Tags of words that mark entities: O outside, and elsewhere how a word stands to its entity, with the type.

``B-LOC`` begins an entity, ``I-LOC`` continues it, ``E-LOC`` or ``L-LOC`` ends it, ``S-LOC`` or ``U-LOC`` is all
of it; IO, BIO, BIOES and BILOU have some of these. Without types there are the letters alone.
"""

from typing import Final

OUTSIDE: Final = "O"
CONTINUES: Final = frozenset("IEL")
"""May follow in an entity."""
ENDS: Final = frozenset("ELSU")
"""No word of the entity follows."""
_ALONE_OR_FIRST: Final = frozenset("BSU")


def is_entity_tag(tag: str) -> bool:
    """Whether it can be read so."""
    return tag == OUTSIDE or tag.partition("-")[0] in CONTINUES | _ALONE_OR_FIRST
