"""Tasks and language-model scores: what an encoder is good for."""
