"""What `bench train` needs of a training step: its phases, its memory, the step in torch."""
