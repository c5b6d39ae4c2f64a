"""What the engines share: checks, length, and greedy generation around a step of their own."""

from abc import ABC, abstractmethod

import numpy as np

from labsupport import folding
from labsupport.kvcache import whole_number


class Engine(ABC):
    """A model with the tokens it has seen: float32, one sequence, room for config.context tokens.

    Whatever is raised, the engine then holds the tokens that it held before.
    """

    def __init__(self, config, weights):
        """`weights` as `charweights.flat` gives them, in float32; they are copied.

        Raises TypeError or ValueError for weights that do not fit.
        """
        if folding.check(config, weights) != np.float32:
            raise TypeError("an engine computes in float32; convert the weights with .astype")
        self.config = config
        self._n_tokens = 0

    def __len__(self):
        """Tokens held."""
        return self._n_tokens

    def truncate(self, n_tokens):
        """Keep the first `n_tokens` tokens; ValueError if there are fewer."""
        n_tokens = whole_number("n_tokens", n_tokens, at_least=0)
        if n_tokens > self._n_tokens:
            raise ValueError(f"cannot truncate to {n_tokens} tokens: {self._n_tokens} are held")
        self._n_tokens = n_tokens

    def reset(self):
        """Forget all tokens."""
        self._n_tokens = 0

    def step(self, token):
        """The logits after one more token, [vocab_size]; the next call overwrites them.

        Raises TypeError for what is not an int, ValueError for a token that is not in the
        vocabulary and when the context is full.
        """
        if type(token) is not int or not 0 <= token < self.config.vocab_size:
            token = self._check_tokens([token])[0]
        if self._n_tokens == self.config.context:
            self._check_room(1)
        logits = self._advance(token)  # [vocab_size]
        self._n_tokens += 1  # last: an interrupted step has left no trace
        return logits

    def prefill(self, tokens):
        """The logits after the last of `tokens`, one or more, [vocab_size]; raises what step does.

        The tokens follow those held; in chunks of any sizes they give what one piece gives.
        """
        tokens = self._check_tokens(tokens)
        self._check_room(len(tokens))
        logits = self._take(tokens)
        self._n_tokens += len(tokens)
        return logits

    def generate(self, prompt, n_new):
        """The `n_new` token ids that follow `prompt`, each the one with the largest logit: a list.

        The prompt follows the tokens held, and each token is computed once; the last is not fed
        back. Raises what prefill does, before anything is computed, and FloatingPointError for
        logits that are not finite.
        """
        prompt = self._check_tokens(prompt)
        n_new = whole_number("n_new", n_new, at_least=0)
        n_fed = len(prompt) + n_new - 1
        if n_new == 0:
            return []
        self._check_room(n_fed)
        start = self._n_tokens
        try:
            return self._greedy(prompt, n_new)
        except BaseException:  # also Ctrl-C
            self._n_tokens = start
            raise

    def _greedy(self, prompt, n_new):
        logits, new = self.prefill(prompt), []
        while True:
            if not np.isfinite(logits).all():
                self._not_finite()
            new.append(int(logits.argmax()))
            if len(new) == n_new:
                return new
            logits = self.step(new[-1])

    @abstractmethod
    def _advance(self, token):
        """The logits after a token at position len(self), its keys and values kept there."""

    @abstractmethod
    def _take(self, tokens):
        """The same for a list of tokens, the first of them there."""

    def _check_tokens(self, tokens):
        tokens = [whole_number("a token", token, at_least=0) for token in tokens]
        if not tokens:
            raise ValueError("there are no tokens; give one or more")
        if max(tokens) >= self.config.vocab_size:
            raise ValueError(f"token {max(tokens)} is not in 0..{self.config.vocab_size - 1}")
        return tokens

    def _check_room(self, n_new):
        if self._n_tokens + n_new > self.config.context:
            raise ValueError(
                f"{self._n_tokens} tokens and {n_new} more pass the context of "
                f"{self.config.context}; truncate() or reset(), or take a larger context"
            )

    def _not_finite(self):
        where = f"after {self._n_tokens} tokens"
        raise FloatingPointError(f"logits {where} are not finite; check the weights")
