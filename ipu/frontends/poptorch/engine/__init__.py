"""How a model of PopTorch runs: micro-batch after micro-batch, gradients, updates, by a plan."""
