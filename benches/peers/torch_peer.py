"""The PyTorch peer: the workloads of shared/workloads.rs and the protocol of protocol/src/lib.rs.

The argument is `software` (CPU) or `gpu` (CUDA). Eager mode, f32 without TF32, convolutions by cuDNN's measured choice.
ResNets with products in f16 keep channels last, as cuDNN's kernels for f16 do.
"""

import json
import math
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

# The same limits as in protocol/src/lib.rs, which explains them. Times in seconds.
SAMPLE_TIME, MAX_REPETITIONS = 0.1, 20
STEADY_REPETITIONS, STEADY_RATIO, MIN_WARM_UP, MAX_WARM_UP = 4, 1.25, 2.0, 15.0


def input_values(seed, count):
    """Returns pseudo-random values in -0.5..0.5 that depend only on the index and the seed."""
    x = np.arange(count, dtype=np.uint32) + np.uint32(seed * 0x9E3779B9 & 0xFFFFFFFF)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x21F0AAAD)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x735A2D97)
    x ^= x >> np.uint32(15)
    return (x >> np.uint32(8)).astype(np.float32) / np.float32(1 << 24) - np.float32(0.5)


class Peer:
    """A device and its workloads.

    A workload method returns a function that runs one repetition and returns the result tensors.
    """

    def __init__(self, device):
        self.device, self.in_f16 = device, False

    def about(self):
        if self.device == "cuda":
            device = torch.cuda.get_device_name()
        else:
            device = f"the CPU, {torch.get_num_threads()} threads"
        return f"{device}, PyTorch {torch.__version__}"

    def sync(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def tensor(self, shape, seed, dtype=torch.float32):
        values = input_values(seed, math.prod(shape)).reshape(shape)
        return torch.from_numpy(values).to(self.device).to(dtype)

    def repeated(self, shape, seed):
        """Returns a tensor of many elements: blocks of 2^24 that are equal."""
        rows, columns = shape
        block = (1 << 24) // columns
        return self.tensor((block, columns), seed).repeat(rows // block, 1)

    def large_unary(self, shape, op):
        x = self.repeated(shape, 1)
        return lambda: [op(x)]

    def large_add(self):
        a, b = self.repeated((1 << 14, 1 << 14), 1), self.repeated((1 << 14, 1 << 14), 2)
        return lambda: [a + b]

    def unary(self, shape, op):
        x = self.tensor(shape, 1)
        return lambda: [op(x)]

    def binary(self, shapes, op, dtype=torch.float32):
        a, b = self.tensor(shapes[0], 1, dtype), self.tensor(shapes[1], 2, dtype)
        return lambda: [op(a, b)]

    def matmul_f16(self, size):
        return self.binary([(size, size)] * 2, torch.matmul, torch.float16)

    def attention(self, dtype, is_causal):
        q, k, v = (self.tensor((4, 16, 2048, 64), seed, dtype) for seed in (1, 2, 3))
        return lambda: [F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)]

    def large_conv2d(self, dtype):
        shapes = [(32, 128, 56, 56), (128, 128, 3, 3)]
        return self.binary(shapes, lambda x, weight: F.conv2d(x, weight, padding=1), dtype)

    def matmul(self, m, k, n):
        return self.binary([(m, k), (k, n)], torch.matmul)

    def conv2d(self):
        shapes = [(16, 16, 64, 64), (32, 16, 3, 3)]
        return self.binary(shapes, lambda x, weight: F.conv2d(x, weight, padding=1))

    def conv2d_backward(self):
        x = self.tensor((16, 16, 64, 64), 1).requires_grad_()
        weight = self.tensor((32, 16, 3, 3), 2).requires_grad_()
        output_gradient = self.tensor((16, 32, 64, 64), 3)

        def work():
            y = F.conv2d(x, weight, padding=1)
            return torch.autograd.grad((y * output_gradient).sum(), [x, weight])

        return work

    def small_adds(self):
        start, step = self.tensor((16,), 1), self.tensor((16,), 2)

        def work():
            total = start
            for _ in range(10_000):
                total = total + step
            return [total]

        return work

    def training(self, model, loss):
        model = model.to(self.device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-5)
        in_f16 = self.in_f16

        def work():
            optimizer.zero_grad()
            with torch.autocast(self.device, torch.float16, enabled=in_f16):
                value = loss(model)
            value.backward()
            optimizer.step()
            return [value.detach()]

        return work

    def labels(self, count):
        return torch.arange(count, device=self.device) % 10

    def mlp_step(self):
        x, labels = self.tensor((256, 784), 1), self.labels(256)
        model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
        return self.training(model, lambda model: F.cross_entropy(model(x), labels))

    def cnn_step(self):
        x, labels = self.tensor((64, 1, 28, 28), 1), self.labels(64)
        convolutions = [nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)]
        layers = [layer for conv in convolutions for layer in (conv, nn.ReLU(), nn.MaxPool2d(2))]
        linear = [nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10)]
        model = nn.Sequential(*layers, *linear)
        return self.training(model, lambda model: F.cross_entropy(model(x), labels))

    def lstm_step(self):
        x, labels = self.tensor((32, 64, 128), 1), self.labels(32)
        model = nn.ModuleList([nn.LSTM(128, 128, batch_first=True), nn.Linear(128, 10)])

        def loss(model):
            lstm, out = model
            return F.cross_entropy(out(lstm(x)[0][:, -1]), labels)

        return self.training(model, loss)

    def resnet(self, blocks, is_deep):
        x, labels = self.tensor((32, 3, 224, 224), 1), self.labels(32)
        model = ResNet(blocks, is_deep)
        if self.in_f16:
            model, x = (of.to(memory_format=torch.channels_last) for of in (model, x))
        return self.training(model, lambda model: F.cross_entropy(model(x), labels))

    def gpt2(self, batch=4, length=512, vocabulary=50_257):
        index = torch.arange(batch * length, device=self.device)
        tokens, following = (index * factor % vocabulary for factor in (7919, 7907))
        tokens = tokens.reshape(batch, length)
        model = Gpt(vocabulary, 768, 12, 12, length)
        return self.training(model, lambda model: F.cross_entropy(model(tokens), following))

    def gpt2_token(self, dtype, length=512, vocabulary=50_257, width=768, layers=12, heads=12):
        model = Gpt(vocabulary, width, layers, heads, length).to(self.device, dtype).eval()
        kept = torch.zeros(layers, 2, 1, heads, length, width // heads, dtype=dtype)
        kept = kept.to(self.device)
        token = torch.zeros(1, dtype=torch.long, device=self.device)

        @torch.inference_mode()
        def work():
            token.copy_(model.next_token(token, kept))
            return [token.double()]

        return work

    def autocast(self, prepare):
        """Returns a workload with products in f16."""
        self.in_f16 = True
        try:
            return prepare(self)
        finally:
            self.in_f16 = False

    def transformer_step(self, shape, layers, heads, feed_forward):
        x, target, width = self.tensor(shape, 1), self.tensor(shape, 2), shape[2]
        layer = nn.TransformerEncoderLayer(
            width, heads, feed_forward, dropout=0.0, activation="gelu", batch_first=True
        )
        model = nn.Sequential(nn.TransformerEncoder(layer, layers), nn.Linear(width, width))
        return self.training(model, lambda model: F.mse_loss(model(x), target))


class ResNet(nn.Module):
    """The network of benches/shared/networks.rs."""

    def __init__(self, blocks, is_deep):
        super().__init__()
        self.stem, self.layers, before = normalised(3, 64, 7, 2), nn.ModuleList(), 64
        for stage, count in enumerate(blocks):
            width = 64 << stage
            to = 4 * width if is_deep else width
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                if is_deep:
                    body = [
                        normalised(before, width, 1, 1),
                        normalised(width, width, 3, stride),
                        normalised(width, to, 1, 1),
                    ]
                else:
                    body = [normalised(before, width, 3, stride), normalised(width, to, 3, 1)]
                body = [layer for part in body for layer in (part, nn.ReLU())][:-1]
                changes = before != to or stride > 1
                beside = normalised(before, to, 1, stride) if changes else nn.Identity()
                self.layers.append(nn.ModuleList([nn.Sequential(*body), beside]))
                before = to
        self.out = nn.Linear(before, 1000)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1)
        for body, beside in self.layers:
            x = F.relu(body(x) + beside(x))
        return self.out(x.mean((2, 3)))


def normalised(before, to, kernel, stride):
    """Returns a convolution and a normalisation."""
    conv = nn.Conv2d(before, to, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(to))


class Gpt(nn.Module):
    """The network of benches/shared/networks.rs."""

    def __init__(self, vocabulary, width, layers, heads, length):
        super().__init__()
        self.heads = heads
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(
            nn.ModuleList(
                [
                    nn.LayerNorm(width),
                    nn.Linear(width, 3 * width),
                    nn.Linear(width, width),
                    nn.LayerNorm(width),
                    nn.Linear(width, 4 * width),
                    nn.Linear(4 * width, width),
                ]
            )
            for _ in range(layers)
        )
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        batch, length = tokens.shape
        x = self.tokens(tokens) + self.positions(torch.arange(length, device=tokens.device))
        for norm1, qkv, projection, norm2, up, down in self.layers:
            parts = qkv(norm1(x)).chunk(3, 2)
            q, k, v = (part.reshape(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + projection(y.transpose(1, 2).reshape(batch, length, -1))
            x = x + down(F.gelu(up(norm2(x))))
        return self.out(self.norm(x)).flatten(0, 1)

    def next_token(self, token, kept):
        """Reads a token after others whose keys and values are `kept`, which has room for its own at the end."""
        last = kept.shape[4] - 1
        x = self.tokens(token) + self.positions.weight[last]
        for (norm1, qkv, projection, norm2, up, down), keys_and_values in zip(self.layers, kept):
            q, *kv = qkv(norm1(x)).reshape(3, 1, self.heads, 1, -1).unbind()
            keys_and_values[:, :, :, last:] = torch.stack(kv)
            y = F.scaled_dot_product_attention(q, *keys_and_values)
            x = x + projection(y.reshape(1, -1))
            x = x + down(F.gelu(up(norm2(x))))
        return self.out(self.norm(x)).argmax(1)


WORKLOADS = {
    "matmul-256": lambda peer: peer.matmul(256, 256, 256),
    "matmul-512": lambda peer: peer.matmul(512, 512, 512),
    "matmul-1024": lambda peer: peer.matmul(1024, 1024, 1024),
    "matmul-2048": lambda peer: peer.matmul(2048, 2048, 2048),
    "matmul-4096": lambda peer: peer.matmul(4096, 4096, 4096),
    "matmul-4096-f16": lambda peer: peer.matmul_f16(4096),
    "matmul-column": lambda peer: peer.matmul(4096, 4096, 1),
    "matmul-row": lambda peer: peer.matmul(16, 4096, 4096),
    "matmul-outer": lambda peer: peer.matmul(4096, 64, 4096),
    "matmul-batched": lambda peer: peer.binary([(16, 256, 256)] * 2, torch.matmul),
    "add": lambda peer: peer.binary([(1 << 24,)] * 2, torch.add),
    "gelu": lambda peer: peer.unary((1 << 24,), F.gelu),
    "sum-last": lambda peer: peer.unary((4096, 4096), lambda x: x.sum(1)),
    "sum-first": lambda peer: peer.unary((4096, 4096), lambda x: x.sum(0)),
    "softmax": lambda peer: peer.unary((4096, 1024), lambda x: x.softmax(1)),
    "transpose": lambda peer: peer.unary((4096, 4096), lambda x: x.t().contiguous()),
    "conv2d": Peer.conv2d,
    "conv2d-backward": Peer.conv2d_backward,
    "small-adds": Peer.small_adds,
    "mlp-step": Peer.mlp_step,
    "cnn-step": Peer.cnn_step,
    "lstm-step": Peer.lstm_step,
    "transformer-step": lambda peer: peer.transformer_step((16, 64, 128), 2, 4, 512),
    "large-matmul-f16": lambda peer: peer.matmul_f16(8192),
    "large-attention": lambda peer: peer.attention(torch.float32, False),
    "large-attention-f16": lambda peer: peer.attention(torch.float16, False),
    "large-attention-causal-f16": lambda peer: peer.attention(torch.float16, True),
    "large-conv2d": lambda peer: peer.large_conv2d(torch.float32),
    "large-conv2d-f16": lambda peer: peer.large_conv2d(torch.float16),
    "large-copy": lambda peer: peer.large_unary((1 << 14, 1 << 14), torch.clone),
    "large-add": Peer.large_add,
    "large-sum-last": lambda peer: peer.large_unary((1 << 14, 1 << 14), lambda x: x.sum(1)),
    "large-sum-first": lambda peer: peer.large_unary((1 << 14, 1 << 14), lambda x: x.sum(0)),
    "large-softmax": lambda peer: peer.large_unary((1 << 16, 1 << 12), lambda x: x.softmax(1)),
    "large-transformer-step": lambda peer: peer.transformer_step((16, 256, 512), 6, 8, 2048),
    "resnet18-step": lambda peer: peer.resnet((2, 2, 2, 2), False),
    "resnet50-step": lambda peer: peer.resnet((3, 4, 6, 3), True),
    "gpt2-step": Peer.gpt2,
    "gpt2-token": lambda peer: peer.gpt2_token(torch.float32),
    "gpt2-token-f16": lambda peer: peer.gpt2_token(torch.float16),
}
AUTOCAST = {
    f"{name}-autocast": lambda peer, prepare=WORKLOADS[name]: peer.autocast(prepare)
    for name in ("resnet18-step", "resnet50-step", "gpt2-step")
}
WORKLOADS.update(AUTOCAST)


def mean_absolute(results):
    """Returns the sum of the mean absolute values of all result tensors."""
    return sum(result.double().abs().mean().item() for result in results)


def repetition(peer, work):
    """Runs one repetition. Returns its time in milliseconds and its results."""
    started = time.perf_counter()
    results = work()
    peer.sync()
    return (time.perf_counter() - started) * 1e3, results


def warm_up(peer, work):
    """Repeats the workload until its time is steady. Returns fields of the reply.

    They are the duration in seconds and the mean absolute value of the first result.
    """
    started = time.perf_counter()
    value = mean_absolute(repetition(peer, work)[1])
    after_first, elapsed = time.perf_counter(), 0.0
    fastest, steady = math.inf, 0
    while elapsed < MAX_WARM_UP and (steady < STEADY_REPETITIONS or elapsed < MIN_WARM_UP):
        ms, _ = repetition(peer, work)
        steady = steady + 1 if ms < fastest * STEADY_RATIO else 0
        if ms * STEADY_RATIO < fastest:
            steady = 1
        fastest = min(fastest, ms)
        elapsed = time.perf_counter() - after_first
    return {"warm_up": time.perf_counter() - started, "value": value}


def peak_kib():
    """Returns the peak resident memory of this process in KiB, or zero if unavailable."""
    try:
        with open("/proc/self/status") as status:
            return next((int(line.split()[1]) for line in status if line.startswith("VmHWM:")), 0)
    except OSError:
        return 0


class Server:
    """Answers the runner's commands. Keeps the current workload between them."""

    def __init__(self, peer):
        self.peer, self.name, self.work = peer, None, None

    def answer(self, command, argument):
        if command == "about":
            return {"about": self.peer.about()}
        if command == "run" and argument in WORKLOADS:
            return {"times": self.run(argument)}
        if command == "steps":
            work = WORKLOADS["cnn-step"](self.peer)
            for _ in range(int(argument)):
                work()
            self.peer.sync()
            return {"done": {"peak_kib": peak_kib()}}
        return {"error": f"unknown command or workload: `{command} {argument}`"}

    def run(self, name):
        warm_up_fields = {}
        if name != self.name:
            self.name, self.work = None, None  # frees memory before the new workload allocates
            work = WORKLOADS[name](self.peer)
            self.peer.sync()
            warm_up_fields = warm_up(self.peer, work)
            self.name, self.work = name, work
        ms, started = [], time.perf_counter()
        while not ms or (
            time.perf_counter() - started < SAMPLE_TIME and len(ms) < MAX_REPETITIONS
        ):
            ms.append(repetition(self.peer, self.work)[0])
        return {"ms": ms, **warm_up_fields}


def main():
    device = "cpu"
    if sys.argv[1:] == ["gpu"]:
        if not torch.cuda.is_available():
            print(
                "PyTorch finds no CUDA device: install a CUDA build and the NVIDIA driver",
                file=sys.stderr,
            )
            sys.exit(1)
        device = "cuda"
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
    server = Server(Peer(device))
    for line in sys.stdin:
        command, _, argument = line.rstrip("\n").partition(" ")
        print(json.dumps(server.answer(command, argument)), flush=True)


if __name__ == "__main__":
    main()
