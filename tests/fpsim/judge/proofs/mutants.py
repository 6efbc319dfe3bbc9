"""Named mutants of kernels and plans, and the theorems that refute them.

Each changes a text that stands once in its file. It is applied to a copy of the tree, where the
proof must end in a counterexample that the mutant's own compiled kernel confirms.
"""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

from tests.mutants import ROOT, Mutant
from tests.mutate import Tree

__all__ = ["MUTANTS", "Named", "outcome"]

ROUNDING, ELEMENTWISE = "fpsim/kernels/rounding/", "fpsim/kernels/elementwise/"
RANDOM = "fpsim/kernels/random/"
WINDOW = "fpsim/kernels/by_unit/window.py"
PICKED = "fpsim/products/by_unit/window.py"
CONSTANTS, QUANTISE = "fpsim/elementwise/constants.py", "fpsim/elementwise/blocks/quantise.py"
BLOCKS, SCALES = "fpsim/kernels/blocks/", "fpsim/elementwise/blocks/scales.py"


class Named(NamedTuple):
    """What is changed, and the theorem that no longer holds."""

    name: str
    path: str
    before: str
    after: str
    theorem: str

    def mutant(self) -> Mutant:
        text = (ROOT / self.path).read_text(encoding="utf-8")
        assert text.count(self.before) == 1, f"{self.name}: {self.before!r} is not one place"
        start = text.index(self.before)
        return Mutant(self.path, start, start + len(self.before), self.after, "named")


MUTANTS = [
    Named("tie to the odd neighbour", ROUNDING + "grids.py",
          "half + ((a >> rule.drop) & 1)", "half + (~(a >> rule.drop) & 1)",
          "convert binary16 RNE"),
    Named("a binade of subnormals on the grid of normal numbers", ROUNDING + "grids.py",
          "select(a < rule.emin << digits", "select(a < rule.emin - 1 << digits",
          "convert e4m3 RNE"),
    Named("a quantum too far down", ROUNDING + "grids.py",
          "floor = select(above, nearest - quantum, nearest)", "floor = nearest - quantum",
          "convert e5m2 RTP"),
    Named("overflow begins late", ELEMENTWISE + "step.py",
          "return (t & ~sign) >= _by_sign(mode, t, sign, rule.over_pos, rule.over_neg)",
          "return (t & ~sign) > _by_sign(mode, t, sign, rule.over_pos, rule.over_neg)",
          "convert e4m3fn RNA"),
    Named("tininess looked for before rounding", "fpsim/elementwise/constants.py",
          "Up.NEVER: 0, Up.ABOVE_HALF: half - 1, Up.FROM_HALF: half, Up.ALWAYS: 2 * half - 1,",
          "Up.NEVER: 0, Up.ABOVE_HALF: 0, Up.FROM_HALF: 0, Up.ALWAYS: 0,",
          "convert f152 RAZ"),
    Named("one random digit fewer", ROUNDING + "round.py",
          "r = umin(rule.random_bits + s, rule.random_most)",
          "r = umin(rule.random_bits + s, rule.random_most) - 1", "convert bfloat16 SR(8)"),
    Named("a signalling NaN is quiet", ELEMENTWISE + "step.py",
          "((raw & quiet_like(raw)) == 0)", "((raw & quiet_like(raw)) != 0)",
          "convert binary16 RTZ"),
    Named("a store that overflows late", ROUNDING + "store.py",
          "r = select(over, select(negative, rule.over_value_neg, rule.over_value_pos), r)",
          "r = select(over, rule.over_value_pos, r)", "store binary16 RNE"),
    Named("a flag of a store is lost", ROUNDING + "store.py",
          "flags = select(over, none + _OVERFLOW, none)", "flags = none",
          "store e4m3fn SR(8)"),
    Named("a store drops a digit too many", ROUNDING + "round.py",
          "return rule.drop + (rule.emin - umin(rule.emin, field))",
          "return rule.drop + (rule.emin - umin(rule.emin, field + 1))", "store e5m2 RNE"),
    Named("the magic number half as large", ROUNDING + "store.py",
          "(rule.drop << digits) | (rule.hidden >> 1)",
          "(rule.drop - 1 << digits) | (rule.hidden >> 1)", "magic binary16 loud"),
    Named("the magic number's middle left out", ROUNDING + "store.py",
          "((rule.drop << digits) | (rule.hidden >> 1))", "(rule.drop << digits)",
          "magic binary16 loud"),
    Named("the magic number overflows", ROUNDING + "store.py",
          "return umin(rule.largest & infinity, infinity - (rule.drop << digits))",
          "return rule.largest & infinity", "magic bfloat16 loud"),
    Named("the other neighbour is made odd", ROUNDING + "to_odd.py",
          "(rounded - (against >> (width - 1))) | 1", "(rounded + (against >> (width - 1))) | 1",
          "add e5m2 RTN"),
    Named("nothing is made odd", ROUNDING + "to_odd.py",
          "error != 0.0, (rounded", "error != error, (rounded", "add e5m2 RTN"),
    Named("zero over zero is a pole", ELEMENTWISE + "special.py",
          "pole = (y == 0.0) & (x != 0.0) & ~nonfinite", "pole = (y == 0.0) & ~nonfinite",
          "divide e5m2 RNE"),
    Named("every root is odd", ROUNDING + "to_odd.py",
          "return _to_odd(bits, residual, as_bits(residual), 64)", "return bits | 1",
          "sqrt e5m2 RTO"),
    Named("the sign of a sum of zeros", ELEMENTWISE + "step.py",
          "(as_bits(a) | as_bits(b)) & sign, s)", "(as_bits(a) & as_bits(b)) & sign, s)",
          "add e5m2 RTN"),
    Named("TwoSum with the operands exchanged", ROUNDING + "to_odd.py",
          "    part = s - x\n    error = (x - (s - part)) + (y - part)\n    bits = as_bits(s)",
          "    part = s - x\n    error = (x - (s - part)) - (y - part)\n    bits = as_bits(s)",
          "add binary16 RTN"),
    Named("subtraction that adds", ELEMENTWISE + "step.py",
          "a, b = x, as_float(as_bits(y) ^ sign)", "a, b = x, y", "subtract e5m2 RNE"),
    Named("products of binary16 rounded at the wrong end", ELEMENTWISE + "step.py",
          "tiny = a < _by_sign(mode, t, sign, rule.tiny_pos, rule.tiny_neg)",
          "tiny = a <= _by_sign(mode, t, sign, rule.tiny_pos, rule.tiny_neg)",
          "multiply binary16 RNE"),
    Named("infinity times zero", ELEMENTWISE + "special.py",
          "invalid = signalling | product_nan | (result_nan & ~operand_nan)",
          "invalid = signalling | (result_nan & ~operand_nan)", "fma binary16 RNE"),
    Named("two slots with one word", RANDOM + "words.py",
          "store(words, at + 5 * step, w1)", "store(words, at + 5 * step, w0)",
          "philox elements half words"),
    Named("counters overlap", RANDOM + "words.py",
          "(first + i) // group * VECTOR_WIDTH", "(first + i) // group * (VECTOR_WIDTH - 1)",
          "philox elements whole words"),
    Named("low halves are not moved to the top", RANDOM + "words.py",
          "w0 << 16, w1 << 16, w2 << 16, w3 << 16", "w0, w1, w2, w3",
          "philox elements half words"),
    Named("a part too many", "fpsim/products/spread_sums.py",
          "return length, n // length", "return length, n // length + 1", "parts of a sum"),
    Named("parts of 65", "fpsim/products/spread_sums.py",
          "length = -(-n // -(-n // PART))", "length = -(-n // -(-n // PART)) + 1",
          "parts of a sum"),
    Named("a tie of elements to the odd code", BLOCKS + "encode.py",
          "((a >> k.drop) & 1)", "((~a >> k.drop) & 1)", "elements mxfp4 RNE"),
    Named("random digits one place too far down", BLOCKS + "encode.py",
          "drawn << (k.drop - k.random)", "drawn << (k.drop - k.random - 1)",
          "elements mxfp8 SR(8)"),
    Named("elements that do not saturate", BLOCKS + "encode.py",
          "code = umin(body, k.largest)", "code = body", "elements mxfp8 RNE"),
    Named("an element overflows late", BLOCKS + "encode.py",
          "else (a >= k.over)", "else (a > k.over)", "elements mxfp6 RNE"),
    Named("integers with the sign of a float", BLOCKS + "encode.py",
          "negative = (none - code) & 0xFF if integers", "negative = code & 0xFF if integers",
          "elements mxint8 RNE"),
    Named("a scale twice as large", SCALES, "return _field(amax) - block.element.emax",
          "return _field(amax) - block.element.emax + 1", "scale mxfp8 floor"),
    Named("half of the wrong digit", SCALES, "half, bits = 1 << (22 - block.element.nmant)",
          "half, bits = 1 << (23 - block.element.nmant)", "scale mxfp4 even"),
    Named("ties down", SCALES, "bits + (1 << 22) >> 23", "bits + (1 << 22) - 1 >> 23",
          "scale mxfp8 nearest"),
    Named("the smallest power rounded up", SCALES, "np.where(bits <= 1 << 22, 0, field)",
          "np.where(bits < 1 << 22, 0, field)", "scale mxfp6 rceil"),
    Named("an infinite block has a scale", SCALES, """nan = np.isnan(amax)
    if block.infinite""", """nan = amax != amax
    if not block.infinite""", "scale mxfp8 floor"),
    Named("a scale clamped below the largest", SCALES, "np.minimum(exact, most + _ONE)",
          "np.minimum(exact, most - _ONE)", "scale nvfp4 digits"),
    Named("a flag for the largest scale", SCALES, "scale == 0, exact > most",
          "scale == 0, exact >= most", "scale nvfp4 digits"),
    Named("a scale that is no longer NaN", SCALES, "scale[nan] = np.nan", "scale[nan] = most",
          "scale nvfp4-ue5m3 digits"),
    Named("a sign in a magnitude", BLOCKS + "largest.py",
          "top = umax(top, load(x, i) & 0x7FFFFFFF)", "top = umax(top, load(x, i))",
          "largest magnitude of a block"),
    Named("the first vector with its sign", BLOCKS + "largest.py",
          "top = load(x, at) & 0x7FFFFFFF", "top = load(x, at)", "largest magnitude of a block"),
    Named("the last vector alone", BLOCKS + "largest.py",
          "top = umax(top, load(x, i) & 0x7FFFFFFF)", "top = load(x, i) & 0x7FFFFFFF",
          "largest magnitude of a block"),
    Named("a sum cut that is rounded to nearest", WINDOW, "return whole_to_float(total) * undo",
          "return whole_to_float_cut(total) * undo", "call e5m2 2 terms window 27 RNE"),
    Named("zeros have the largest exponent", WINDOW, "tops = [*map(smax, tops, fields)]",
          "tops = [*map(umax, tops, fields)]", "call e5m2 2 terms window 27 RNE"),
    Named("a product counted twice", WINDOW, "sums = [total + product for",
          "sums = [product + product for", "call e5m2 2 terms window 27 RNE"),
    Named("given digits one place too high", ROUNDING + "round.py",
          "return word << (width - r)", "return word << (width - r - 1)",
          "convert binary16 SR(8) given bits"),
    Named("one given digit fewer", ROUNDING + "round.py",
          "r = umin(rule.random_bits + s, rule.random_most)",
          "r = umin(rule.random_bits + s, rule.random_most) - 1",
          "convert e5m2 SR(13) given bits"),
    Named("a coin's other side", ROUNDING + "round.py",
          "select(up, below, zero)) & ~below", "select(up, zero, below)) & ~below",
          "convert binary16 SR_EQUAL given bits"),
    Named("flushed results keep their digits", ELEMENTWISE + "step.py",
          "r = select(tiny, r & ~rule.flush, r)", "r = select(tiny, r & rule.flush, r)",
          "convert binary16 RNE subnormals=flush_results"),
    Named("the smallest normal operand is flushed", ELEMENTWISE + "step.py",
          "(bits & ~sign) < rule.daz", "(bits & ~sign) <= rule.daz",
          "convert bfloat16 RTZ subnormals=flush_both"),
    Named("what overflows is positive", ELEMENTWISE + "step.py",
          "return positive ^ (t & (positive ^ negative))", "return positive",
          "convert e4m3fn RNE overflow=saturate"),
    Named("no flags, and no infinities", ELEMENTWISE + "step.py",
          "limit = infinity_like(sign) if flags", "limit = sign if flags",
          "convert binary16 RNE without flags"),
    Named("a tie to the odd neighbour without flags", ROUNDING + "grids.py",
          "half + ((a >> rule.drop) & 1)", "half + (~(a >> rule.drop) & 1)",
          "convert binary16 RNE without flags"),
    Named("a quantum too far down without flags", ROUNDING + "grids.py",
          "floor = select(above, nearest - quantum, nearest)", "floor = nearest - quantum",
          "convert e5m2 RTP without flags"),
    Named("normal partials with a digit more", ROUNDING + "round.py",
          ">> (width - tail))) & ~below", ">> (width - tail - 1))) & ~below",
          "store binary16 SR(8) normal"),
    Named("what overflows is not rare", ROUNDING + "store.py",
          "((a - least) > (rule.largest - least)) & (a != 0)",
          "((a - least) > (rule.largest - least + 1)) & (a != 0)", "store e5m2 SR(8) normal"),
    Named("subnormal numbers are not rare", ROUNDING + "store.py",
          "least = umax(rule.emin << (23", "least = umax(rule.emin - 1 << (23",
          "store e4m3 SR(8) normal"),
    Named("bfloat16 products of one operand", ELEMENTWISE + "step.py",
          "return as_bits(x * y), none", "return as_bits(x * x), none",
          "multiply bfloat16 RNE"),
    Named("bfloat16 products tie to odd", ROUNDING + "grids.py",
          "half + ((a >> rule.drop) & 1)", "half + (~(a >> rule.drop) & 1)",
          "multiply bfloat16 RNE"),
    Named("bfloat16 products overflow late", ELEMENTWISE + "step.py",
          "return (t & ~sign) >= _by_sign(mode, t, sign, rule.over_pos, rule.over_neg)",
          "return (t & ~sign) > _by_sign(mode, t, sign, rule.over_pos, rule.over_neg)",
          "multiply bfloat16 RNE"),
    Named("the second code five digits down", BLOCKS + "lanes.py",
          "ir.Constant(pairs, [4] * (n // 2))", "ir.Constant(pairs, [5] * (n // 2))",
          "packed codes"),
    Named("the second code stays where it is", BLOCKS + "lanes.py",
          "ir.Constant(pairs, [4] * (n // 2))", "ir.Constant(pairs, [0] * (n // 2))",
          "packed codes"),
    Named("the second code over the first", BLOCKS + "lanes.py",
          "ir.Constant(pairs, [4] * (n // 2))", "ir.Constant(pairs, [8] * (n // 2))",
          "packed codes"),
    Named("a block of zeros has a factor", SCALES,
          "np.where((amax == 0) | ~np.isfinite(amax), _ONE, factor)",
          "np.where(~np.isfinite(amax), _ONE, factor)", "factor amax e4m3fn"),
    Named("half a power of two", SCALES, "np.uint32(0xFF800000)", "np.uint32(0xFFC00000)",
          "factor amax_down e4m3fn"),
    Named("a NaN that becomes infinity", SCALES, "return np.where(np.isnan(x), x, power)",
          "return power", "factor wide_down e4m3fn"),
    Named("another least magnitude", SCALES,
          "stored = np.maximum(amax, np.float32(1e-4))",
          "stored = np.maximum(amax, np.float32(1e-3))",
          "factor clamped e4m3fn"),
    Named("an infinite tensor makes zeros", SCALES,
          "return factor if factor != 0 and of_tensor != 0 else _ONE",
          "return factor if of_tensor != 0 else _ONE", "tensor factor nvfp4"),
    Named("the tensor's factor twice", SCALES, "_ONE / (scale * (_ONE / factor))",
          "_ONE / (scale * factor)", "two levels nvfp4"),
    Named("scales that make 4 as those that make 6", SCALES, "if more != 1:", "if more == 1:",
          "two levels nvfp4-46 of 4"),
    Named("the tensor's own scale without its element", SCALES,
          "of_tensor / np.float32(block.element.max * block.bound)",
          "of_tensor / np.float32(block.bound)", "two levels nvfp4-eps"),
    Named("equal errors take the second", QUANTISE, "better = errors[1] < errors[0]",
          "better = errors[1] <= errors[0]", "choice of 4 or 6"),
    Named("the larger error decides", QUANTISE, "better = errors[1] < errors[0]",
          "better = errors[1] > errors[0]", "choice of 4 or 6"),
    Named("the scale of one and the factor of the other", QUANTISE,
          "np.where(better, second.factors, first.factors)",
          "np.where(better, first.factors, second.factors)", "choice of 4 or 6"),
    Named("no room for an accumulator", PICKED, "if 4 * unit.terms + 2 <= 2",
          "if 4 * unit.terms - 2 <= 2", "lanes of windowed units"),
    Named("a pair that leaves its binade", PICKED, "(4 * unit.terms + 2).bit_length() + 1",
          "(4 * unit.terms + 2).bit_length() - 1", "lanes of windowed units"),
    Named("operands too far apart", PICKED, "return top <= _FAR and", "return top <= _FAR + 3 and",
          "exponents of windowed units"),
    Named("products of 13 digits in lanes of 32 bits", CONSTANTS,
          "if 2 * fmt.precision <= 24 and small", "if 2 * fmt.precision <= 26 and small",
          "lanes of products"),
    Named("too many random digits for a sum", CONSTANTS,
          "random_most <= 22 - fmt.precision", "random_most <= 24 - fmt.precision",
          "lanes of sums"),
    Named("an upper limb without room", "fpsim/products/by_unit/exact.py",
          "52 + max(last + 48, top - 50)", "52 + max(last + 48, top - 53)", "limbs of exact units"),
    Named("lanes that overflow", "fpsim/products/by_operation/bounds.py",
          "reach = lane.bias - (lane.digits - rules.precision) - 2",
          "reach = lane.bias - (lane.digits - rules.precision) + 1",
          "lanes of products by operation"),
    Named("roundings that are not counted", "fpsim/products/by_operation/bounds.py",
          "most = (k * high_a * high_b + drift) * growth", "most = k * high_a * high_b",
          "largest sums of products by operation"),
    Named("parts rounded down", "fpsim/products/spread_sums.py",
          "length = -(-n // -(-n // PART))", "length = n // -(-n // PART)", "parts of a sum"),
]


def outcome(tree: Tree, named: Named) -> str:
    """What the command line says of the theorem in a tree with the mutant."""
    mutant = named.mutant()
    tree.apply(mutant)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "ipu.experiments.cli", "verify", "proof", named.theorem],
            cwd=tree.root, env=tree.environment(), capture_output=True, text=True, check=False,
        )
    finally:
        tree.restore(mutant)
    return f"status {done.returncode}\n{done.stdout}{done.stderr}"
