"""Theorems about the kernels' formulas for all inputs, decided by an SMT solver.

An optional extra: `pip install 'fpsim-lab[proofs]'`. Nothing outside this room imports a solver.
"""
