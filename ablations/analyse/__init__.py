"""Analysis of Hugging Face models: layer-wise measures of models from elsewhere."""
