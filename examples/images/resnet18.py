"""Writes resnet18.json: the names and shapes of torchvision's ResNet-18, and its scores for weights and images that the
test of weights.rs makes, too.

python3 examples/images/resnet18.py
"""

import json
import os

import torch
from torchvision.models import resnet18


def numbers(seed, *shape):
    """Returns numbers from -1 to 1 that depend on their position and the seed alone."""
    count = torch.Size(shape).numel()
    positions = torch.arange(count, dtype=torch.int64)
    return (((positions * 7919 + seed * 104729) % 2003) / 1001.0 - 1.0).float().reshape(shape)


def value(name, x):
    kind = name.rsplit(".", 1)[-1]
    if kind == "running_var":
        return 1 + 0.5 * x.abs()
    if kind == "weight" and x.dim() == 1:
        return 1 + 0.1 * x
    if kind == "weight":
        return x * (2 / x[0].numel()) ** 0.5
    return 0.1 * x


model = resnet18(num_classes=10)
state = {name: tensor for name, tensor in model.state_dict().items() if tensor.dim() > 0}
for seed, name in enumerate(sorted(state)):
    state[name].copy_(value(name, numbers(seed, *state[name].shape)))
model.eval()
with torch.no_grad():
    scores = model(numbers(1000, 2, 3, 72, 72))
fixture = {
    "names": {name: list(tensor.shape) for name, tensor in state.items()},
    "scores": scores.flatten().tolist(),
}
folder = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(folder, "resnet18.json"), "w") as file:
    json.dump(fixture, file, separators=(",", ":"))
    file.write("\n")
