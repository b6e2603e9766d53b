"""libswitchyard_cuda for the package switchyard, which finds it here; built with CUDA 13."""
