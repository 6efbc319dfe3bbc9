"""NVIDIA's tensor cores as records of matrix units.

Modelled                       source
V100 F16, A100 BF16, Ada E4M3, recorded results (MATLAB-tensor-core, model_validation, commit
B200 MMA E4M3                  b12b5a7): bit-equal in 5000 of 5000 rows of each set; B200's rows
                               hold for every window from 19 on
other inputs of A100 and Ada;  the same model with the constants of the family (MMA-Sim, commit
T4, A2, L40S, H100, H200, B200 c785138; Khattak & Mikaitis); no recordings among the vectors that
                               tests read
H100, H200, B200 with E5M2 and the model that reproduces B200 E4M3; recordings of the other parts
H100, H200 with E4M3 to F16    exist and are not among the vectors that tests read

Where sources disagree: MMA-Sim has TF32 calls of 8 terms from H100 on, the recordings hold 4; the
recordings are followed. T4 was not measured with 8 terms and follows MMA-Sim's Turing row.

Source    docs/semantics.md §5; Fasi, Higham, Mikaitis & Pranesh 2021 (V100, T4, A100).
"""

from __future__ import annotations

from dataclasses import replace

from fpsim.records.evidence import Evidence
from fpsim.records.formats import (
    BFLOAT16,
    BINARY16,
    BINARY32,
    E2M1FN,
    E2M3FN,
    E3M2FN,
    E4M3FN,
    E5M2,
    TF32,
    Format,
)
from fpsim.records.rounding import RNE, RTZ
from fpsim.records.units import MatrixUnit, register

__all__ = ["BINARY32_SHORT", "TENSOR_CORES"]

_RECORDED = (Evidence.MEASURED, "recorded results, MATLAB-tensor-core b12b5a7")
_PUBLISHED = (Evidence.INFERRED, "MMA-Sim c785138 and Khattak & Mikaitis, not recorded here")
_TURING = (Evidence.INFERRED, "MMA-Sim c785138, Turing; Fasi et al. 2021 measured 4 terms or more")
_WINDOW = (
    Evidence.MEASURED,
    f"{_RECORDED[1]}; the window is 19 or more there, 25 is the F16 rows'",
)
_PAIRED = (Evidence.INFERRED, "the model that reproduces B200 E4M3; not recorded here")
_DISPUTED = (Evidence.INFERRED, "4 in recordings, not read here; 8 in MMA-Sim c785138")
_CONSTANTS = ("terms", "window", "cut", "accumulator", "rounding", "order", "join")

#: The result of FP8 instructions whose binary32 results keep 13 fraction digits.
BINARY32_SHORT = Format.custom(8, 14, name="binary32/13")

#: What tcgen05's kind f8f6f4 takes, either operand any of them.
_NARROW = (E4M3FN, E2M3FN, E3M2FN, E2M1FN, E5M2)

_INPUTS = {"F16": BINARY16, "BF16": BFLOAT16, "TF32": TF32, "E4M3": E4M3FN, "E5M2": E5M2}
_SHORT = {BINARY32: "F32", BINARY16: "F16"}

#: Machine and inputs of the recorded sets that tests reproduce.
_REPRODUCED = {("V100", "F16"), ("A100", "BF16"), ("ADA", "E4M3"), ("B200", "E4M3")}
_HOPPER_AND_LATER = ("H100", "H200", "B200")


def _evidence(machine: str, inputs: str) -> dict[str, tuple[Evidence, str]]:
    """What each constant of a row rests on."""
    evidence = _TURING if machine == "T4" else _PUBLISHED
    constants = dict.fromkeys(_CONSTANTS, _RECORDED if _is_recorded(machine, inputs) else evidence)
    if inputs == "TF32" and machine in _HOPPER_AND_LATER:
        constants["terms"] = _DISPUTED
    return constants


def _is_recorded(machine: str, inputs: str) -> bool:
    return (machine, inputs) in _REPRODUCED


def _tensor_core(
    machine: str, inputs: str, partials: Format, terms: int, window: int, instruction: str = "mma"
) -> MatrixUnit:
    """A row of the table: toward zero into binary32, to nearest even into binary16."""
    return MatrixUnit(
        name=f"{machine}_{inputs}_{_SHORT[partials]}",
        instruction=f"{machine} tensor core, {instruction}, {inputs.lower()} to {partials.name}",
        inputs=(_INPUTS[inputs],),
        partials=partials,
        terms=terms,
        window=window,
        accumulator=partials,
        rounding=RNE if partials == BINARY16 else RTZ,
        evidence=_evidence(machine, inputs),
    )


def _short(unit: MatrixUnit) -> MatrixUnit:
    """The same with binary32 results of 13 fraction digits."""
    return replace(unit, accumulator=BINARY32_SHORT) if unit.partials == BINARY32 else unit


def _paired(machine: str, inputs: str, partials: Format) -> MatrixUnit:
    """Two calls chained from zero over the even and the odd pairs of terms, then c added.

    Each call is rounded as the row's accumulator says: into binary16 to nearest even, into binary32
    toward zero. c is added in the same format, to nearest even.
    """
    unit = _tensor_core(machine, inputs, partials, 16, 25)
    evidence = dict.fromkeys(_CONSTANTS, _PAIRED)
    if _is_recorded(machine, inputs):
        evidence = dict.fromkeys(_CONSTANTS, _RECORDED) | {"window": _WINDOW}
    return replace(unit, calls=2, order="pairs", join=partials, evidence=evidence)


def _half_inputs(machine: str, terms: int, window: int, wide: bool = True) -> list[MatrixUnit]:
    rows = [_tensor_core(machine, "F16", p, terms, window) for p in (BINARY32, BINARY16)]
    if wide:
        rows.append(_tensor_core(machine, "BF16", BINARY32, terms, window))
        rows.append(_tensor_core(machine, "TF32", BINARY32, 4, window))
    return rows


def _eight_bit_inputs(machine: str) -> list[MatrixUnit]:
    rows = []
    for inputs in ("E4M3", "E5M2"):
        for partials in (BINARY32, BINARY16):
            if machine in ("ADA", "L40S"):
                row = _short(_tensor_core(machine, inputs, partials, 16, 13))
            elif machine != "B200" and partials == BINARY32:
                row = _short(_tensor_core(machine, inputs, partials, 32, 13, "wgmma"))
            else:
                row = _paired(machine, inputs, partials)
                if machine == "B200":  # libraries use tcgen05 there, which is another instruction
                    row = replace(
                        row, name=row.name.replace("B200_", "B200_MMA_"),
                        instruction=row.instruction.replace(", mma,", ", mma.sync,"),
                    )
            rows.append(row)
    return rows


def _narrow_inputs() -> list[MatrixUnit]:
    """tcgen05's kind f8f6f4: one call of 32 terms with c."""
    return [
        MatrixUnit(
            f"B200_TC05_F8F6F4_{_SHORT[partials]}",
            f"B200 tensor core, tcgen05, f8f6f4 to {partials.name}", _NARROW, partials, 32, 25,
            accumulator=partials, rounding=RNE if partials == BINARY16 else RTZ,
            evidence=dict.fromkeys(_CONSTANTS, _PUBLISHED),
        )
        for partials in (BINARY32, BINARY16)
    ]


def _tensor_cores() -> list[MatrixUnit]:
    rows = _half_inputs("V100", 4, 23, wide=False) + _half_inputs("T4", 8, 24, wide=False)
    for machine in ("A100", "A2", "ADA", "L40S"):
        rows += _half_inputs(machine, 8, 24)
    for machine in _HOPPER_AND_LATER:
        rows += _half_inputs(machine, 16, 25)
    for machine in ("ADA", "L40S", *_HOPPER_AND_LATER):
        rows += _eight_bit_inputs(machine)
    return rows + _narrow_inputs()


#: Every tensor core modelled, in the order of `fpsim list units`.
TENSOR_CORES = tuple(_tensor_cores())
register(TENSOR_CORES)
