"""The tutorial's programs: training on the simulated machine from the command line.

Launchers of the tutorial's names lie in `experiments`; what the programs share is here.
"""
