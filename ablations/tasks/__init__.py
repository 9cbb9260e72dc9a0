"""Tasks and scores of language models: the uses of an encoder."""
