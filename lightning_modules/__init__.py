"""How a model learns: encoder, objectives, corruption, data, training."""
