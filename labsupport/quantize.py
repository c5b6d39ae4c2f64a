"""Fewer bits a number: whole codes and a scale, for the rows of a cache and for a model's weights.

    x ≈ scale · code,   scale = largest |x| of those that share it / (2**(bits - 1) - 1)

The code is x / scale, rounded, so each number is off by half a scale at most ("absmax", symmetric:
arXiv:2208.07339, section 2). Everything hangs on which numbers share a scale: one that is large
makes the steps coarse for all of them.
"""

from dataclasses import dataclass
from math import ceil

import numpy as np

from labsupport.kvcache import whole_number

SMALLEST = np.finfo(np.float32).tiny  # of scales: below it float32 loses digits, so steps miss
LARGEST = np.finfo(np.float32).max / 2  # of numbers: 127 rounded scales must not pass the end


@dataclass(frozen=True, eq=False)
class Quantized:
    """Codes and their scales, as `quantize` makes them.

    codes   int8, of the shape of what was quantized
    scales  float32, of length 1 along the axis whose numbers share one
    """

    codes: np.ndarray
    scales: np.ndarray
    bits: int

    def dequantize(self, dtype=np.float32):
        """What the codes stand for, of the shape of codes."""
        return np.multiply(self.codes, self.scales, dtype=dtype)

    @property
    def nbytes(self):
        """Bytes of both arrays as they are held: a byte a code, however few its bits."""
        return self.codes.nbytes + self.scales.nbytes

    @property
    def packed_bytes(self):
        """Bytes there would be with the codes packed into `bits` bits each: computed, not held."""
        return ceil(self.codes.size * self.bits / 8) + self.scales.nbytes


def quantize(x, axis, bits=8):
    """`x`, a float32 or float64 array, as codes; the numbers along `axis` share a scale.

    bits   2 to 8; codes go from -(2**(bits - 1) - 1) to as much, and one pattern of bits is unused

    |x - dequantize()| <= scale / 2, and a few units in the last place for rounding in between.

    Raises TypeError for another dtype or bits that are no int, ValueError for other bits and for
    numbers that are NaN, infinite or above 1.7e38, of which there would be no finite scale.
    """
    bits = checked_bits(bits)
    levels = 2 ** (bits - 1) - 1
    if not isinstance(x, np.ndarray) or x.dtype not in (np.float32, np.float64):
        found = getattr(x, "dtype", type(x).__name__)
        raise TypeError(f"x must be a float32 or float64 array, not {found}; convert it first")
    sizes = finite("x", x)
    largest = sizes.max(axis=axis, keepdims=True, initial=0)
    scales = np.maximum(largest / levels, SMALLEST).astype(np.float32)  # never 0: it divides
    return Quantized(np.rint(x / scales).astype(np.int8), scales, bits)


def int8_weights(weights, bits=8):
    """Flat weights as {name: Quantized or array}: what is a matrix in codes, the rest as it is.

    A matrix [n_in, n_out] has one scale an output channel (arXiv:2004.09602, section 4.1), the
    tables of tokens and positions one a row. Biases and gains, 1 % of the numbers, stay. Raises as
    `quantize` does.
    """
    tables = ("tokens", "positions")
    return {
        name: quantize(array, 1 if name in tables else 0, bits) if array.ndim == 2 else array
        for name, array in weights.items()
    }


def restored(quantized):
    """The flat weights that `int8_weights` stands for, float32, for `charweights` to use."""
    return {
        name: array.dequantize() if isinstance(array, Quantized) else array
        for name, array in quantized.items()
    }


def weight_bytes(weights, packed=False):
    """Bytes of flat weights, quantized ones with their scales; packed: as Quantized says it."""
    return sum(
        array.packed_bytes if packed and isinstance(array, Quantized) else array.nbytes
        for array in weights.values()
    )


def checked_bits(bits):
    """`bits` as an int; TypeError or ValueError unless it is one from 2 to 8."""
    if whole_number("bits", bits, at_least=2) > 8:
        raise ValueError(f"bits must be 2 to 8, not {bits}")
    return int(bits)


def finite(name, x):
    """|x|; ValueError if any is NaN or above LARGEST."""
    sizes = np.abs(x)
    if not (sizes <= LARGEST).all():
        said = f"NaN, infinite or above {LARGEST:.2g}"
        raise ValueError(f"{name} holds numbers that are {said}: look where they come from")
    return sizes
