"""The simulated machine (`ipu.machine`) and the training that runs on it (`ipu.learn`)."""
