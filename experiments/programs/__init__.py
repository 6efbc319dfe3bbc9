"""The tutorial's programs: training on the simulated machine from the command line.

Launchers of the tutorial's names lie in the folder above; what the programs share is here.
"""
