"""Train the character model on the course's own text; and the weights that were recorded.

AdamW (arXiv:1711.05101) with a warm-up and a cosine (arXiv:1608.03983) of the learning rate. The
seed fixes the weights at the start and every batch, so the same machine trains the same bits.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch.nn import functional as F
from tqdm import tqdm

from labsupport import charweights, corpus, evidence, machine
from labsupport.charmodel import CharConfig, CharModel
from labsupport.kvcache import whole_number

RECORD = "charmodel"  # the run in evidence/ that holds weights, text and loss curve
WEIGHTS, TEXT = "weights.safetensors", "corpus.txt"  # its attachments
PAGES = ("README.md", "index.md", "CONTRIBUTING.md", "pages/*.md", "chapters/*.md")


@dataclass(frozen=True)
class Plan:
    """How to train; ValueError or TypeError for what is no plan."""

    steps: int = 1600
    batch: int = 32  # windows of the text a step
    rate: float = 1e-3  # of learning, at its highest
    warm_up: int = 100  # steps until it is reached
    last_rate: float = 0.1  # of the highest, at the last step
    decay: float = 0.1  # of matrices, not of biases, gains and embeddings
    clip: float = 1.0  # the largest norm of a gradient
    every: int = 100  # steps from one evaluation to the next
    seed: int = 0

    def __post_init__(self):
        for name in ("steps", "batch", "every"):
            whole_number(name, getattr(self, name), at_least=1)
        if whole_number("seed", self.seed, at_least=0) >= 2**63:
            raise ValueError(f"seed must be below 2**63, not {self.seed}")
        if not 0 < self.rate < 1:
            raise ValueError(f"rate must be between 0 and 1, not {self.rate}")

    def rate_at(self, step):
        """The learning rate of a step, the first of which is 0."""
        if step < self.warm_up:
            return self.rate * (step + 1) / self.warm_up
        turned = math.pi * (step - self.warm_up) / max(1, self.steps - self.warm_up)
        return self.rate * (self.last_rate + (1 - self.last_rate) * (1 + math.cos(turned)) / 2)

    def evaluated(self):
        """The steps before which both losses are taken, and the end."""
        return [*range(0, self.steps, self.every), self.steps]


def train(config, text, plan):
    """Train a model of `config` on `text`, whose last tenth is held out.

    Returns (rows, weights): one row an evaluation, `step`, `training` and `held_out` (mean losses
    in nats a character), and the flat float32 weights where the held-out loss was lowest.

    Raises ValueError for a text too short, FloatingPointError for a loss that is not finite.
    """
    alphabet = corpus.Alphabet.of(text, config.vocab_size)
    learned, held = (torch.tensor(alphabet.encode(part)) for part in corpus.split(text))
    span = config.context + 1  # a window and the characters one later
    if len(held) < span:
        need = math.ceil(span / corpus.HELD_OUT)
        raise ValueError(f"the text has {len(text)} characters; {need} or more are needed")

    model = CharModel(config, plan.seed)
    draw = torch.Generator().manual_seed(plan.seed)
    tests = {
        "training": _windows(learned, span, len(held) // span),
        "held_out": _windows(held, span),
    }
    optimizer = _optimizer(model, plan)
    rows, best = [], math.inf
    for step in tqdm(range(plan.steps + 1), desc="training", disable=None):
        if step in plan.evaluated():
            losses = {name: _mean_loss(model, windows) for name, windows in tests.items()}
            if not all(map(math.isfinite, losses.values())):
                raise FloatingPointError(f"at step {step} the losses are {losses}; lower the rate")
            rows.append({"step": step, **losses})
            if losses["held_out"] < best:
                best, weights = losses["held_out"], charweights.flat(model)
        if step == plan.steps:
            return pd.DataFrame(rows), weights
        starts = torch.randint(len(learned) - span + 1, (plan.batch, 1), generator=draw)
        _learn(
            model, optimizer, learned[starts + torch.arange(span)], plan.rate_at(step), plan.clip
        )


def _learn(model, optimizer, windows, rate, clip):
    """One step of learning from windows [batch, n_tokens + 1]."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad()
    _loss(model, windows).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()


def _optimizer(model, plan):
    decaying, others = [], []
    for name, weight in model.named_parameters():
        is_matrix = weight.dim() == 2 and not name.startswith(("tokens", "positions"))
        (decaying if is_matrix else others).append(weight)
    groups = [{"params": decaying, "weight_decay": plan.decay}, {"params": others}]
    return torch.optim.AdamW(groups, lr=plan.rate, betas=(0.9, 0.99), weight_decay=0.0)


def _loss(model, windows):
    """Mean nats a character, each predicted from those before it; windows [batch, n_tokens + 1]."""
    logits = model(windows[:, :-1])  # [batch, n_tokens, vocab_size]
    return F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


@torch.no_grad()
def _mean_loss(model, windows):
    parts = windows.split(32)
    return sum(_loss(model, part).item() * len(part) for part in parts) / len(windows)


def _windows(ids, span, count=None):
    """`count` windows spread evenly over the ids, [count, span]; by default those side by side."""
    starts = np.linspace(0, len(ids) - span, count or len(ids) // span).astype(int)
    return torch.stack([ids[start : start + span] for start in starts])


def course_text():
    """The text of the course as it is now: the docstrings of its modules, then its pages."""
    modules = sorted(machine.PACKAGE.glob("*.py"))
    pages = [page for pattern in PAGES for page in sorted(machine.ROOT.glob(pattern))]
    parts = [corpus.docstrings(file.read_text(encoding="utf-8")) for file in modules]
    parts += [corpus.prose(page.read_text(encoding="utf-8")) for page in pages]
    return "\n".join(parts)


def recorded():
    """The recorded model: (config, weights), to be given to `charweights.model`.

    Raises FileNotFoundError, naming the remedy, when nothing is recorded.
    """
    config = CharConfig(**evidence.read(RECORD).manifest["config"]["model"])
    return config, charweights.from_bytes((evidence.directory(RECORD) / WEIGHTS).read_bytes())


def recorded_text():
    """What it was trained on: (alphabet, text). Raises as `recorded` does."""
    alphabet = corpus.Alphabet(evidence.read(RECORD).manifest["config"]["alphabet"])
    return alphabet, (evidence.directory(RECORD) / TEXT).read_bytes().decode("utf-8")
