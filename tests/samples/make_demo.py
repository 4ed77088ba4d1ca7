#!/usr/bin/env python3
"""Writes demo.pth: a training checkpoint of a very small language model, as people save them.

It has what real ones have: a tied weight, a transposed view, an optimizer, and values that are no
tensors. The same torch writes the same bytes at every run. Usage: make_demo.py [FILE]
"""

import sys
from pathlib import Path

import torch

VOCABULARY, WIDTH, LAYERS = 64, 16, 2


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ln = torch.nn.LayerNorm(WIDTH)
        self.attn = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.mlp = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.attn(self.ln(x)).chunk(3, dim=-1)
        return x + self.mlp(torch.nn.functional.scaled_dot_product_attention(q, k, v))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.h = torch.nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.h(self.embed(tokens)))


def main():
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.arange(VOCABULARY).reshape(4, VOCABULARY // 4)
    logits = model(tokens)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("demo.pth")
    torch.save({
        "epoch": 1,
        "loss": loss.item(),
        "model": model.state_dict(),
        "projection": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).t(),
        "optimizer": optimizer.state_dict(),
        "config": {"vocabulary": VOCABULARY, "width": WIDTH, "layers": LAYERS, "tied": True},
    }, file)


main()
