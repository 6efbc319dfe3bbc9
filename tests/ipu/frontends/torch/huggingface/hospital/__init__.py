"""Programs of transformers and accelerate that are ill, and healthy ones; the causes are known."""
