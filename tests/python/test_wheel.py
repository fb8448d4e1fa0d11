"""The wheel: built twice to the same bytes, unpacked elsewhere, imported and used from there alone; its RECORD holds."""

import base64
import csv
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = os.environ["FOVEA_LIBRARY"]

USE = """
import fovea, sys
assert "numpy" not in sys.modules and "torch" not in sys.modules, "the import alone must bring neither"
assert fovea.__file__.startswith(sys.path[0]), fovea.__file__
assert fovea.__version__ == sys.argv[1], fovea.__version__
names = str(fovea.backends())
assert "CPU_ATTN" in names
attention = fovea.Attention(fovea.AttentionSpec(2, 1, 16, "float32"), fovea.Limits(1, 1, 16, 16))
print(attention.backend())
"""


class Wheel(unittest.TestCase):
    def build(self, out):
        run = subprocess.run(
            [sys.executable, str(ROOT / "python" / "build_wheel.py"), "--library", LIBRARY, "--out", str(out)],
            check=True, capture_output=True, text=True,
        )
        return pathlib.Path(run.stdout.strip())

    def test_it(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            wheel = self.build(folder / "a")
            self.assertEqual(wheel.read_bytes(), self.build(folder / "b").read_bytes())
            self.assertRegex(wheel.name, r"^fovea-(\d+\.\d+\.\d+)-py3-none-linux_x86_64\.whl$")
            version = wheel.name.split("-")[1]
            with zipfile.ZipFile(wheel) as archive:
                self.assertIsNone(archive.testzip())
                names = archive.namelist()
                info = f"fovea-{version}.dist-info"
                for name in ("fovea/__init__.py", "fovea/py.typed", "fovea/libfovea.so", f"{info}/LICENSE", f"{info}/METADATA"):
                    self.assertIn(name, names)
                self.assertFalse([name for name in names if "__pycache__" in name])
                record = list(csv.reader(archive.read(f"{info}/RECORD").decode().splitlines()))
                self.assertEqual(sorted(row[0] for row in record), sorted(names))
                for name, digest, size in record:
                    if name != f"{info}/RECORD":
                        data = archive.read(name)
                        wanted = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                        self.assertEqual((digest, int(size)), (f"sha256={wanted}", len(data)))
                self.assertIn(f"Version: {version}\n", archive.read(f"{info}/METADATA").decode())
                archive.extractall(folder / "target")
            environment = {k: v for k, v in os.environ.items() if not k.startswith(("FOVEA_", "PYTHONPATH"))}
            environment["PYTHONPATH"] = str(folder / "target")
            (folder / "target" / "use.py").write_text(USE)
            run = subprocess.run(
                [sys.executable, str(folder / "target" / "use.py"), version], env=environment, cwd=folder, capture_output=True,
                text=True,
            )
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn("ATTN", run.stdout)

    def test_a_missing_library_is_reported(self):
        environment = dict(os.environ, FOVEA_LIBRARY="/no/such/libfovea.so")
        run = subprocess.run([sys.executable, "-c", "import fovea"], env=environment, capture_output=True, text=True)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("ImportError: fovea: /no/such/libfovea.so can't be loaded", run.stderr)
        run = subprocess.run(
            [sys.executable, str(ROOT / "python" / "build_wheel.py"), "--library", "/no/such.so"], capture_output=True, text=True
        )
        self.assertIn("/no/such.so is not there", run.stderr)


if __name__ == "__main__":
    unittest.main()
