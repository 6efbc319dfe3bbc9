"""Training on the simulated machine: tape, primitives, variables, loss scaling, optimisers."""
