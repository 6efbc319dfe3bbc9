"""For people: numbers, arrays and matrix units taken apart."""
