"""Patterns of layer names: those of file names, and a sentence for one that matches nothing."""

from __future__ import annotations

import pytest

from ipu.learn.patterns import check_patterns, matches


@pytest.mark.parametrize(
    ("layer", "pattern", "expected"),
    [("h", "h", True), ("h", "H", False), ("block1/conv", "block1/*", True), ("a/b/c", "a/*", True),
     ("h2", "h[12]", True), ("all_vars/h", "h", False)],
)
def test_patterns_are_those_of_file_names_with_their_case(layer, pattern, expected):
    assert matches(layer, pattern) == expected


def test_a_pattern_that_matches_nothing_lists_what_there_is():
    check_patterns("layers", ["h*"], {"hidden"})
    with pytest.raises(ValueError, match=r"x='zz' matches no layer; use one of hidden, output$"):
        check_patterns("x", ["h*", "zz"], {"output", "hidden"})
    with pytest.raises(ValueError, match=r"use one of \(no layers\)"):
        check_patterns("x", ["zz"], set())
