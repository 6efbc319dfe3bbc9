"""Replicas of a program, each in a process: averages of gradients, equal weights."""
