"""Values that go elsewhere, are chosen or pass as they are; one file is one subject."""
