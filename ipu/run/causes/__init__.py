"""Causes: what hurt a run, each once, the one that explains the most harm first.

A cause is read off the births of a report (`ipu.run.births`), its losses, gradients and updates.
`finding` asks the rules in their order; each other file is the rules of one subject, or the words
of their sentences. Bounds are shares from which on the harm of the programs in
tests/ipu/frontends/torch/hospital could be told from rounding that does none.
"""
