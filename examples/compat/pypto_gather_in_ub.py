"""PyPTO's gather of selected tokens from a paged cache, as a program for PyPTO writes it."""

import numpy as np

from switchyard.compat import pypto

rows, hidden, block_size = 6, 4, 2
cache = np.array([[10 * row + column for column in range(hidden)] for row in range(rows)], np.float16)

param = pypto.from_numpy(cache, "kv_cache")
indices = pypto.from_numpy(np.array([[0, 4, 3]], np.int32), "topk_indices")
block_table = pypto.from_numpy(np.array([[0, 2, 1]], np.int32), "page_table")

pypto.set_vec_tile_shapes(32, 64)
live = pypto.view(indices, [1, 3], [0, 0], valid_shape=[1, 2])  # two of three indices are valid

for name, chosen in (("all", indices), ("two", live)):
    out = pypto.experimental.gather_in_ub(param, chosen, block_table, block_size, -2)
    print(name, out.numpy()[:, 0].astype(int).tolist())

out = pypto.experimental.gather_in_ub(param, indices, block_table, block_size, -2)
assert (out.numpy() == cache[[0, 2, 5]]).all()
