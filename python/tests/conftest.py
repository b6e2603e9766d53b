"""What holds for all Python tests."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # where there is a GPU, JAX would put its arrays there
