"""Doctests of front ends are collected where their framework is installed."""

from importlib.util import find_spec

collect_ignore = []
if not find_spec("torch"):
    collect_ignore += ["fpsim/torch.py", "ipu/frontends/torch", "ipu/frontends/poptorch"]
if not find_spec("tensorflow"):
    collect_ignore += ["ipu/frontends/tensorflow"]
