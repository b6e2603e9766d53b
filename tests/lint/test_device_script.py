"""scripts/test_cuda.py: which programs it runs on a device, and what it says where there is none."""
import os
import subprocess
import sys
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
SCRIPT = os.path.join(ROOT, "scripts", "test_cuda.py")
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import test_cuda  # noqa: E402


class TestCuda(unittest.TestCase):
    def test_programs(self):
        names, operators = test_cuda.programs(), test_cuda.operators()
        self.assertIn("op_kv_together", names)
        self.assertIn("op_moe_slots", names)
        self.assertIn("op_mesh", names)
        self.assertNotIn("op_ctx_threads", names)
        for name in operators:
            for path in (f"tests/examples/{name}.txt", f"tests/case/{name}.c"):
                self.assertTrue(os.path.exists(os.path.join(ROOT, path)), path)

    def test_without_a_gpu(self):
        done = subprocess.run([sys.executable, SCRIPT, "--", "-DX=Y"], env=dict(os.environ, PATH="/nowhere"), capture_output=True,
                              text=True, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, "test-cuda: nothing was run: nvidia-smi is not there\n", ""))


if __name__ == "__main__":
    unittest.main()
