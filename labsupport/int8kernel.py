"""A matrix times a vector, from float32 and from int8 codes with a scale a row, both compiled.

The loops are the same but for what they read, so their times show what a byte less is worth: the
codes take a quarter of the bytes, and an instruction more a number to become floats.
"""

import numpy as np

try:
    from numba import njit
except ImportError as error:
    message = "the kernels need numba: pip install numba, as requirements.txt pins it"
    raise ImportError(message) from error

FAST = {"fastmath": {"reassoc", "contract"}}  # the order of sums: else there is no vector code


@njit(**FAST)
def float_product(matrix, x, y):
    """y [n_out] = matrix [n_out, n_in] @ x [n_in], all float32."""
    for j in range(len(y)):
        row, total = matrix[j], np.float32(0)
        for i in range(len(x)):
            total += row[i] * x[i]
        y[j] = total


@njit(**FAST)
def int8_product(codes, scales, x, y):
    """y [n_out] = (codes [n_out, n_in] * scales [n_out, 1]) @ x [n_in]; codes int8, else float32.

    A row's scale multiplies its sum, once: one that differs along the row could not wait so long.
    """
    for j in range(len(y)):
        row, total = codes[j], np.float32(0)
        for i in range(len(x)):
            total += np.float32(row[i]) * x[i]
        y[j] = total * scales[j, 0]
