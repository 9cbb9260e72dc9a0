"""The network: encoder, decoder, attention and prediction heads."""
