"""Compatibility layers: modules with the names and signatures of accelerator vendors' Python APIs.

They run on any CPU, with NumPy or PyTorch arrays, and give the results the vendor documents, to the bit. A
program that imports the vendor's module under its own name needs one line::

    sys.modules["pypto"] = switchyard.compat.pypto
"""
