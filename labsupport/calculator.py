"""The memory calculator, for a page: it works without a kernel and without a network.

Its script does its own arithmetic, in whole half bytes; the tests compare it with `memory`.
"""

import json
from pathlib import Path

from labsupport import modelcards
from labsupport.memory import BYTES

_PARTS = ("calculator.css", "calculator.js", "calculator_form.js")


class Calculator:
    """A form that fits a model, its cache and a card together; see `show`."""

    def __init__(self, model: str, dtype: str):
        self.model, self.dtype = model, dtype

    def _repr_html_(self) -> str:
        page = _text("calculator.html")
        for name in _PARTS:
            page = page.replace(f"/* {name} */", _text(name))
        return page.replace("/* data */", _inert(self._data()))

    def __repr__(self) -> str:
        shape = f"labsupport.modelcards.CARDS[{self.model!r}].shape({self.dtype!r})"
        return (
            f"A calculator of memory for {len(modelcards.CARDS)} models, to use in a page.\n"
            f"In Python: {shape},\n"
            "and of that bytes_at, break_even, tokens_that_fit, sequences_that_fit."
        )

    def _data(self) -> dict:
        models = [_sizes(card) for card in modelcards.CARDS.values()]
        return {"models": models, "bytes": BYTES, "model": self.model, "dtype": self.dtype}


def show(model: str = "Llama 3 8B", dtype: str = "float16") -> Calculator:
    """The calculator, with this model and dtype to start from.

    Raises ValueError for a model without a card and for a dtype without a size.
    """
    for name, known in ((model, modelcards.CARDS), (dtype, BYTES)):
        if name not in known:
            raise ValueError(f"{name!r} is not known; choose one of {', '.join(known)}")
    return Calculator(model, dtype)


def _sizes(card) -> dict:
    """A card as the form's fields have it: a window, and how many layers have it."""
    windowed = [window for window in card.windows or () if window is not None]
    return {
        "name": card.name,
        "layers": card.n_layers,
        "kvHeads": card.n_kv_heads,
        "headDim": card.head_dim,
        "parameters": card.n_parameters,
        "window": card.window,
        "windowed": len(windowed),
        "latent": card.latent_dim,
        "context": card.context,
        "positions": card.n_positions,
        "url": card.config_url,
        "paper": card.paper,
        "note": card.note,
    }


def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _inert(data: dict) -> str:
    """JSON that cannot end the script element which holds it."""
    return json.dumps(data).replace("<", "\\u003c")
