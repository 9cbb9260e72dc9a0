"""Layer-wise measures of Hugging Face models."""
