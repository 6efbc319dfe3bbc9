"""Keras models on the machine: fit, evaluate and predict inside an IPUStrategy."""
