"""Graphs of TensorFlow on the machine: nodes, programs, their execution, launches."""
