"""Doctests of front ends are collected where their framework is installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["fpsim/torch.py", "ipu/frontends/torch"]
if not find_spec("tensorflow"):
    collect_ignore.append("ipu/frontends/tensorflow")
