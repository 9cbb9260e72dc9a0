"""Special ids that every part agrees on. They are the first ids of every vocabulary, in this order."""

PAD, UNKNOWN, START, END, MASK = range(5)

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""Names of the special ids. They are BERT's, so that exported models look familiar."""

FIRST_WORD_ID = len(SPECIAL_TOKENS)
"""First id that stands for text; all higher ids do too."""
