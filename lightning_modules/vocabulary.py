"""Special ids that every part agrees on. They open every vocabulary, in this order."""

PAD, UNKNOWN, START, END, MASK = range(5)

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""Names of the special ids: BERT's, so that exported models look familiar."""

FIRST_WORD_ID = len(SPECIAL_TOKENS)
"""Ids from here on stand for text."""
