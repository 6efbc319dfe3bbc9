"""Small programs, ill in a way that is known, and healthy ones: what the page says of them."""
