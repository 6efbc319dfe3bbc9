"""Checkpoints: the state of a training, in memory and in a file, and how it goes on from there."""

from ipu.learn.checkpoint.file import load, save
from ipu.learn.checkpoint.keeper import NAME, Keeper, interrupt_later
from ipu.learn.checkpoint.resume import check_program, restore, take
from ipu.learn.checkpoint.state import Kept, Number, Positioned, TrainingState

__all__ = [
    "NAME", "Keeper", "Kept", "Number", "Positioned", "TrainingState", "check_program",
    "interrupt_later",
    "load", "restore", "save", "take",
]
