"""Random words in kernels."""
