"""Programs on several IPUs: plans, what runs them, and what they cost."""

from ipu.plan.inference import infer
from ipu.plan.orders import Order
from ipu.plan.plan import Plan
from ipu.plan.schedule import Schedule
from ipu.plan.trainer import PlanTrainer, Trainer

__all__ = ["Order", "Plan", "PlanTrainer", "Schedule", "Trainer", "infer"]
