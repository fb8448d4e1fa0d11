#!/usr/bin/env python3
"""Makes fovea-VERSION-py3-none-linux_x86_64.whl of python/fovea and a built libfovea.so, with nothing but the standard library.

    python3 python/build_wheel.py --library build/release/lib/libfovea.so --out dist

The same inputs give the same bytes. The version is that of project() in CMakeLists.txt, and the library must agree."""

import argparse
import base64
import ctypes
import hashlib
import pathlib
import re
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TAG = "py3-none-linux_x86_64"
TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that zip knows


def version() -> str:
    text = (ROOT / "CMakeLists.txt").read_text()
    found = re.search(r"project\(\s*fovea\s+VERSION\s+([0-9.]+)", text)
    if not found:
        sys.exit(f"build_wheel.py: {ROOT / 'CMakeLists.txt'} has no project(fovea VERSION ...)")
    return found.group(1)


def metadata(number: str) -> str:
    return "\n".join(
        [
            "Metadata-Version: 2.1",
            "Name: fovea",
            f"Version: {number}",
            "Summary: LLM inference on GPUs and CPUs: models, and paged and ragged attention",
            "License: " + (ROOT / "LICENSE").read_text().strip().splitlines()[0].strip(),
            "License-File: LICENSE",
            "Requires-Python: >=3.9",
            "Classifier: Operating System :: POSIX :: Linux",
            "Description-Content-Type: text/markdown",
            "",
            (ROOT / "docs" / "python.md").read_text(),
        ]
    )


WHEEL = f"Wheel-Version: 1.0\nGenerator: fovea\nRoot-Is-Purelib: false\nTag: {TAG}\n"


def digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def build(library: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    number = version()
    loaded = ctypes.CDLL(str(library.resolve()))
    loaded.fovea_version.restype = ctypes.c_char_p
    of_library = loaded.fovea_version().decode()
    if of_library != number:
        sys.exit(f"build_wheel.py: {library} has version {of_library}; CMakeLists.txt says {number}: build it again")
    info = f"fovea-{number}.dist-info"
    package = ROOT / "python" / "fovea"
    files = {
        f"fovea/{path.relative_to(package).as_posix()}": path.read_bytes()
        for path in sorted(package.rglob("*"))
        if path.suffix in (".py", ".pyi", ".typed")
    }
    files["fovea/libfovea.so"] = library.read_bytes()
    files[f"{info}/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    files[f"{info}/METADATA"] = metadata(number).encode()
    files[f"{info}/WHEEL"] = WHEEL.encode()
    record = f"{info}/RECORD"
    lines = [f"{name},{digest(data)},{len(data)}" for name, data in files.items()]
    files[record] = "\n".join(lines + [f"{record},,", ""]).encode()
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"fovea-{number}-{TAG}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            archive.writestr(entry, data)
    return wheel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, required=True, help="a built libfovea.so")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "dist", help="the folder of the wheel")
    arguments = parser.parse_args()
    if not arguments.library.is_file():
        sys.exit(f"build_wheel.py: {arguments.library} is not there; build the target fovea_shared first")
    print(build(arguments.library, arguments.out))


if __name__ == "__main__":
    main()
