"""PyPTO's gather of the first columns of selected tokens, as a program for PyPTO writes it."""

import numpy as np

from switchyard.compat import pypto

src = pypto.tensor([4, 4], pypto.DT_INT8, "src")
src[:] = np.arange(16).reshape(4, 4)
indices = pypto.from_numpy(np.array([[3, 0, 3]], np.int64), "indices")
block_table = pypto.from_numpy(np.array([[1, 0]], np.int32), "block_table")

out = pypto.experimental.gather_in_l1(src, indices, block_table, 2, 2, is_b_matrix=True, is_trans=False)
print(out, out.numpy().tolist())
assert out.numpy().tolist() == [[4, 5], [8, 9], [4, 5]]
