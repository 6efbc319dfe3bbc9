"""The update rules in numpy: rule(number type, w, gradients) yields w after each of them."""

from __future__ import annotations

import numpy as np

from fpsim import BINARY16, BINARY32
from ipu.learn.optim import SGD, Adam, AdamW, RMSProp

NATIVE = {BINARY16: np.float16, BINARY32: np.float32}


single = np.float32


def sgd(T, w, gradients, rate=0.03, momentum=0.0, decay=0.0, dampening=0.0, sign=1):
    v = None
    for g in gradients:
        g = sign * g
        if decay:
            g = g + w * T(decay)
        fresh = g * T(1 - dampening) if dampening else g
        v = g if v is None else T(momentum) * v + fresh
        w = w - T(rate) * v
        yield w


def nesterov(T, w, gradients, rate=0.03, momentum=0.9):
    v = np.zeros_like(w)
    for g in gradients:
        v = T(momentum) * v + g
        w = w - (g * T(rate) + (v * T(momentum)) * T(rate))
        yield w


def rmsprop(
    T, w, gradients, rate=0.03, decay=0.9, momentum=0.5, epsilon=1e-4, initial=0.0, outside=False
):
    ms, v = np.full_like(w, initial), np.zeros_like(w)
    for g in gradients:
        ms = (g * g) * (T(1) - T(decay)) + ms * T(decay)
        v = v * T(momentum) + (g * T(rate)) / (
            np.sqrt(ms) + T(epsilon) if outside else np.sqrt(ms + T(epsilon))
        )
        w = w - v
        yield w


def adam(T, w, gradients, rate=0.03, beta1=0.9, beta2=0.999, epsilon=1e-4):
    m, v = np.zeros_like(w), np.zeros_like(w)
    p1, p2 = single(beta1), single(beta2)
    for g in gradients:
        alpha = (T(rate) * np.sqrt(T(1) - T(p2))) / (T(1) - T(p1))
        m = m + (g - m) * (T(1) - T(beta1))
        v = v + (g * g - v) * (T(1) - T(beta2))
        w = w - (m * alpha) / (np.sqrt(v) + T(epsilon))
        p1, p2 = p1 * single(beta1), p2 * single(beta2)
        yield w


def adamw(T, w, gradients, rate=0.03, beta1=0.9, beta2=0.999, epsilon=1e-4, decay=0.1):
    m, v = np.zeros_like(w), np.zeros_like(w)
    p1, p2 = single(beta1), single(beta2)
    for g in gradients:
        m = T(beta1) * m + T(1 - beta1) * g
        v = T(beta2) * v + (T(1 - beta2) * g) * g
        left1, left2 = T(single(1) - p1), T(single(1) - p2)
        u = (m / left1) / (np.sqrt(v / left2) + T(epsilon)) + T(decay) * w
        w = w - T(rate) * u
        p1, p2 = p1 * single(beta1), p2 * single(beta2)
        yield w


RULES = {
    "sgd": (SGD(0.03), sgd, {}),
    "momentum": (SGD(0.03, 0.9), sgd, {"momentum": 0.9}),
    "nesterov": (SGD(0.03, 0.9, nesterov=True), nesterov, {}),
    "weight decay": (SGD(0.03, 0.9, weight_decay=0.1), sgd, {"momentum": 0.9, "decay": 0.1}),
    "plain weight decay": (SGD(0.03, weight_decay=0.1), sgd, {"decay": 0.1}),
    "dampening": (SGD(0.03, 0.9, dampening=0.3), sgd, {"momentum": 0.9, "dampening": 0.3}),
    "maximize": (SGD(0.03, 0.9, weight_decay=0.1, dampening=0.3, maximize=True), sgd,
                 {"momentum": 0.9, "decay": 0.1, "dampening": 0.3, "sign": -1}),
    "rmsprop": (RMSProp(0.03, 0.9, 0.5, 1e-4), rmsprop, {}),
    "rmsprop as torch": (RMSProp(0.03, 0.9, 0.5, 1e-4, epsilon_in_root=False), rmsprop,
                         {"outside": True}),
    "rmsprop from one": (RMSProp(0.03, momentum=0.5, epsilon=1e-4, initial=1.0), rmsprop,
                         {"initial": 1.0}),
    "adam": (Adam(0.03, epsilon=1e-4), adam, {}),
    "adamw": (AdamW(0.03, epsilon=1e-4, weight_decay=0.1), adamw, {}),
}
