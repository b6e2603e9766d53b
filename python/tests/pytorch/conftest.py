"""How torch itself computes in these tests."""

try:
    import torch.library
except ModuleNotFoundError:
    pass
else:
    torch.set_num_threads(1)  # tensors are small, and threads would only wait for each other
    torch.backends.mkldnn.set_flags(False)  # which multiplies float32 at 8 bits in some builds (2.4 on aarch64)
