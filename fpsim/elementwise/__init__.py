"""One rounding per element: operations, constants of kernels, codes, comparisons, input."""
