"""Learning: encoder, objectives, corruption, data and training of a model."""
