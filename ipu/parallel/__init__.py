"""Programs on several IPUs: plans, what runs them, and what they cost."""

from ipu.parallel.inference import infer
from ipu.parallel.orders import Order
from ipu.parallel.plan import Plan
from ipu.parallel.schedule import Schedule
from ipu.parallel.trainer import Trainer

__all__ = ["Order", "Plan", "Schedule", "Trainer", "infer"]
