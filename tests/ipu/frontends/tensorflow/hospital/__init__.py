"""Small programs of TensorFlow, ill in a way that is known, and healthy ones."""
