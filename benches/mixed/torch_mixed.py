"""Trains the network of main.rs with PyTorch, in f32 and in bf16 with its autocast, on the CPU."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SAMPLES, INPUTS, WIDTH, CLASSES, STEPS, REPORT_EVERY = 256, 32, 64, 10, 300, 50


def values(seed, *shape):
    """Returns numbers from -0.5 to 0.5 that depend on their position and the seed alone."""
    x = np.arange(np.prod(shape), dtype=np.uint32) + np.uint32(seed * 0x9E3779B9 & 0xFFFFFFFF)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x21F0AAAD)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x735A2D97)
    x ^= x >> np.uint32(15)
    values = (x >> np.uint32(8)).astype(np.float32) / np.float32(1 << 24) - np.float32(0.5)
    return torch.from_numpy(values.reshape(shape))


def linear(seed, inputs, outputs):
    layer = nn.Linear(inputs, outputs)
    scale = 2.0 / np.float32(np.sqrt(np.float32(inputs)))
    with torch.no_grad():
        layer.weight.copy_(values(seed, inputs, outputs).T * scale)
        layer.bias.copy_(values(seed + 100, outputs) * scale)
    return layer


def train(dtype):
    network = nn.Sequential(
        linear(1, INPUTS, WIDTH),
        nn.GELU(),
        nn.LayerNorm(WIDTH),
        linear(2, WIDTH, WIDTH),
        nn.GELU(),
        linear(3, WIDTH, CLASSES),
    )
    adam = torch.optim.Adam(network.parameters(), lr=1e-3, eps=1e-8)
    x = values(7, SAMPLES, INPUTS) * 4.0
    labels = ((x[:, :4].sum(1) + 8.0) * 0.625).int().clamp(0, CLASSES - 1).long()
    losses = []
    for step in range(STEPS + 1):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            loss = F.cross_entropy(network(x), labels)
        if step % REPORT_EVERY == 0:
            losses.append(f"{loss.item():.5f}")
        adam.zero_grad()
        loss.backward()
        adam.step()
    print(f"| PyTorch {torch.__version__}, cpu | {dtype} | {' | '.join(losses)} |")


for dtype in ["f32", "bf16"]:
    train(dtype)
