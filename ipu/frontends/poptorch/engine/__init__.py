"""How a model of PopTorch runs: flights of micro-batches, gradients, updates, by a plan."""
