"""Prefixes computed once and used again: their keys, their owner, and the model they belong to.

Three slips give wrong outputs without a word: a key that two prefixes share, a kept prefix that a
query has written into, and weights that changed under an old identity.
"""

import hashlib
from types import MappingProxyType

import numpy as np

from labsupport.decoder import Decoder


def identity(sources, weights, config):
    """SHA-256 of all that decides what a model computes, in hexadecimal.

    sources  name -> bytes of the code that computes
    weights  name -> array; names, dtypes, shapes and bytes count, their order does not
    config   by its repr, which must tell all its fields

    Each part stands after a line with its name and length: no two models give the same bytes.
    """
    digest = hashlib.sha256()

    def add(header, n_bytes, content):
        digest.update(f"{header}, {n_bytes} bytes\n".encode())
        digest.update(content)

    told = repr(config).encode()
    add("config", len(told), told)
    for name, code in sorted(sources.items()):
        add(f"source {name!r}", len(code), code)
    for name, array in sorted(weights.items()):
        add(f"weights {name!r} {array.dtype.str} {array.shape}", array.nbytes, np.ravel(array))
    return digest.hexdigest()


class FrozenDecoder(Decoder):
    """A decoder that cannot be written, with the `identity` computed once, as it is built.

    It has the config of `decoder` and a copy of its weights. Writing to a weight raises ValueError,
    replacing one TypeError, setting an attribute AttributeError: so the identity stays true for
    the object's life. Other weights need another FrozenDecoder, and that has another identity.
    TypeError for a decoder of another kind, whose attention is not Decoder's.

    This is a contract within one program, not a defence: whoever means to can reach the memory.
    Nor does it see code that changes while the program runs.
    """

    def __init__(self, decoder, sources):
        if type(decoder).read is not Decoder.read:  # its own attention would be lost unsaid
            raise TypeError(f"a {type(decoder).__name__} attends otherwise; freeze a plain Decoder")
        weights = MappingProxyType({name: _frozen(w) for name, w in decoder.weights.items()})
        self.__dict__.update(  # and no super().__init__, which would draw new weights
            config=decoder.config,
            weights=weights,
            identity=identity(sources, weights, decoder.config),
        )

    def __setattr__(self, name, value):
        raise AttributeError(f"{name} cannot be set: a frozen decoder never changes; build another")


def _frozen(array):
    """A copy that NumPy will not make writable again, as it would an array that owns its memory."""
    return np.asarray(memoryview(array.copy()).toreadonly())


class PrefixStore:
    """Kept prefixes: the caches of their tokens, under scope, identity and the tokens themselves.

    The scope, a text, says who may share a prefix; the identity, which model computed it. Keys are
    compared in full, each part with its type, so equal hashes never give another's prefix. To
    Python 1, True, 1.0 and np.int64(1) are equal and have one hash; here they are four different
    tokens. At worst a prefix is then computed twice: give ints, those of an array by tolist().
    """

    def __init__(self):
        self._kept = {}

    def __len__(self):
        """Prefixes kept."""
        return len(self._kept)

    def keep(self, scope, identity, prefix, caches):
        """Keep a copy of `caches`, one a layer, which hold the tokens of `prefix` and no more.

        What was kept under this key is replaced. ValueError if there is no cache, or if one holds
        more or fewer tokens; then nothing has changed.
        """
        lengths = [len(cache) for cache in caches]
        if set(lengths) != {len(prefix)}:
            raise ValueError(
                f"the prefix has {len(prefix)} tokens, the caches hold {lengths}; keep them before "
                "they go on, or truncate() a copy"
            )
        self._kept[_key(scope, identity, prefix)] = [cache.copy() for cache in caches]

    def find(self, scope, identity, prefix):
        """The store's own caches of `prefix`, one a layer: copy each before you continue it.

        Raises LookupError if there are none.
        """
        kept = self._kept.get(_key(scope, identity, prefix))
        if kept is None:
            raise LookupError(
                f"no prefix of these {len(prefix)} tokens is kept for scope {scope!r} and identity "
                f"{identity!r}; compute it and keep() it"
            )
        return kept


def _key(scope, identity, prefix):
    """What a prefix is kept under; a dict compares all of it, whatever the hashes."""
    parts = (scope, identity, *prefix)
    return tuple(map(type, parts)), parts
