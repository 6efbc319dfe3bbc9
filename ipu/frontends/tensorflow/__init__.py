"""TensorFlow programs on the simulated machine."""
