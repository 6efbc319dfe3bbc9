"""Two small networks for handwritten digits in PyTorch, as users write them.

torch is an argument: the module is read where torch is missing too.
"""

from __future__ import annotations

from typing import Any

__all__ = ["MODELS", "WIDTH", "cnn", "transformer"]

#: Numbers that the transformer has for each row of pixels.
WIDTH = 32
_CLASSES, _SIDE = 10, 8


def transformer(torch: Any) -> Any:
    """Two encoder blocks over the 8 rows of an image, then a classifier of their mean."""
    nn, functional = torch.nn, torch.nn.functional

    class TransformerBlock(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            n, rows, _ = x.shape
            heads = self.qkv(self.norm1(x)).view(n, rows, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(*heads)
            x = x + self.out(mixed.transpose(1, 2).reshape(n, rows, WIDTH))
            return x + self.down(functional.gelu(self.up(self.norm2(x))))

    class Transformer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(_SIDE, WIDTH)
            self.position = nn.Parameter(torch.randn(_SIDE, WIDTH) * 0.02)
            self.blocks = nn.Sequential(TransformerBlock(), TransformerBlock())
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, _CLASSES)

        def forward(self, images: Any) -> Any:
            x = self.blocks(self.embed(images.squeeze(1)) + self.position)
            return self.head(self.norm(x).mean(1))

    return Transformer()


def cnn(torch: Any) -> Any:
    """Two convolutions with batch norms, then a dense layer."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4, _CLASSES),
    )


MODELS = {"transformer": transformer, "CNN": cnn}
