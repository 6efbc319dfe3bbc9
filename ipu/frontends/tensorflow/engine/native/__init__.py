"""Nodes of a plan below their kernels: native calls, on memory that stays from run to run.

A plan runs node by node when it first meets inputs of these shapes and formats. Then what its nodes
ask of the machine is noted (`noting`), and from there on the calls run again (`running`), each with
the random bits of its node's place. Values, flags, random bits and their numbers, ledger and cycles
are those of the kernels.
"""
