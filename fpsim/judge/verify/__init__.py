"""The core against what others say: recorded vectors, and the definition of each mode.

testfloat     lines of Berkeley testfloat_gen
fpgen         IBM FPgen's .fptest files
exhaustive    every operand, or pair of operands, of a 16-bit format, judged by `definition`
engines       random and named matrix units through every engine, beside exact fractions
"""
