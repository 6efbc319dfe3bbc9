"""Commands that run programs of users: PyTorch, TensorFlow, several processes."""
