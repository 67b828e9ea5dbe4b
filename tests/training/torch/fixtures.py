"""Writes fixtures.json: what PyTorch computes for schedules, clipped steps and averages of weights; and model.pt, the
weights of a small model.

python3 tests/training/torch/fixtures.py
"""

import json
import os

import torch
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel

STEPS = 24


def rates(schedule):
    """Returns the learning rates of the first steps."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    scheduler = schedule(optimizer)
    found = []
    for _ in range(STEPS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def numbers(seed, *shape):
    """Returns numbers from -1 to 1 that depend on their position and the seed alone."""
    count = torch.Size(shape).numel()
    values = [((i * 7919 + seed * 104729) % 2003) / 1001.0 - 1.0 for i in range(count)]
    return torch.tensor(values, dtype=torch.float32).reshape(shape)


def train(optimizer_of, max_norm=None, decay=None):
    """Trains a linear layer for ten steps. Returns its weights, or their average."""
    layer = torch.nn.Linear(6, 3)
    with torch.no_grad():
        layer.weight.copy_(numbers(1, 6, 3).T)
        layer.bias.copy_(numbers(2, 3))
    optimizer = optimizer_of(layer.parameters())

    def average(old, new, updates):
        # AveragedModel's first update copies the weights before the first step.
        steps = updates.item() - 1
        kept = min(decay, (1 + steps) / (10 + steps))
        return kept * old + (1 - kept) * new

    averaged = AveragedModel(layer, avg_fn=average) if decay else None
    if averaged:
        averaged.update_parameters(layer)
    x, y = numbers(3, 12, 6) * 4, numbers(4, 12, 3)
    for _ in range(10):
        loss = ((layer(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        if max_norm:
            torch.nn.utils.clip_grad_norm_(layer.parameters(), max_norm)
        optimizer.step()
        if averaged:
            averaged.update_parameters(layer)
    found = averaged.module if averaged else layer
    return found.weight.T.flatten().tolist() + found.bias.tolist()


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.01, eps=1e-5, weight_decay=0.02)


def save_model(path):
    """Saves the weights of a small model. Returns its results for some rows."""
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2), torch.nn.LayerNorm(2)
    )
    for seed, tensor in enumerate(model.state_dict().values()):
        tensor.copy_(numbers(seed + 5, *tensor.shape))
    torch.save(model.state_dict(), path)
    with torch.no_grad():
        return model(numbers(9, 5, 4)).flatten().tolist()


folder = os.path.dirname(os.path.abspath(__file__))
fixtures = {
    "torch": torch.__version__,
    "rates": {
        "cosine": rates(lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=23, eta_min=0.001)),
        "linear": rates(lambda o: lr_scheduler.LinearLR(o, 1.0, 0.2, total_iters=16)),
        "exponential": rates(lambda o: lr_scheduler.ExponentialLR(o, 0.9)),
        "step": rates(lambda o: lr_scheduler.StepLR(o, 7, 0.5)),
    },
    "weights": {
        "sgd": train(sgd),
        "adamw": train(adamw),
        "clipped": train(sgd, max_norm=0.5),
        "average": train(sgd, decay=0.8),
    },
    "model": {"results": save_model(os.path.join(folder, "model.pt"))},
}
with open(os.path.join(folder, "fixtures.json"), "w") as file:
    json.dump(fixtures, file, indent=1)
    file.write("\n")
