"""Checks the output of nvcc: which architectures a binary has code for, and the registers and spilled bytes of each kernel.

check_binary.py archs FOLDER ARCH...  each *.cu.o below FOLDER has code for each ARCH ("90-real": SASS of sm_90, "80-virtual":
                                      PTX of compute_80, "80": both) and no other; *_sm90a.cu.o for sm_90a alone
check_binary.py budgets FOLDER TABLE  every kernel within its line of TABLE; FOLDER has the *.ptxas files that
                                      tools/nvcc_logged.sh writes beside objects; those of tests are ignored. Lines of
                                      architectures that nothing was compiled for are ignored. --write updates the lines
                                      of architectures that something was compiled for
check_binary.py waits FOLDER          every kernel for sm_90 below FOLDER that may start before the kernels in front of it have
                                      ended waits for them (griddepcontrol.wait). Exit status 77: there is no such code
"""

import pathlib
import re
import struct
import subprocess
import sys

HOPPER_ONLY = {"sm_90a"}
# Kernels that are launched with programmatic stream serialization, and the least number of waits in each: one for each role of
# its warps. A kernel without a wait would read what is not written yet, and would hide kernels in front from those behind it.
DEPENDENT = {
    "append_heads_kernel": 1, "append_kernel": 1, "append_token_kernel": 1, "bad_pages_kernel": 1, "choose_kernel": 1,
    "codes_mma_linear": 1,
    "combine_kernel<__half>": 1,
    "combine_kernel<__nv_bfloat16>": 1, "index_rows_kernel": 1, "index_scores_kernel": 1, "latent_kernel": 1,
    "expert_expand_kernel": 1, "expert_shrink_kernel": 1, "lora_expand_kernel": 1, "lora_gated_kernel": 1, "row_slots_kernel": 1,
    "mla::combine_splits": 1, "mla::lists_kernel": 1, "mla::sm80_kernel": 1, "mla::sm90_kernel": 1,
    "norm_kernel": 1, "rope_rows_kernel": 1, "rows_kernel": 1, "schedule_kernel": 1,
    "simt::decode_kernel": 1, "small_codes_kernel": 1, "sm80::decode_kernel": 1, "sm80::decode_narrow_kernel": 1, "sm80::extend_kernel": 1,
    "sm90::decode_kernel": 2, "sm90::prefill_kernel": 1, "sm90::widen_kernel": 1, "sm90::widen_plan_kernel": 1, "take_tokens_kernel": 1, "wgmma_codes": 2, "wgmma_linear": 2,
    "wgmma_widened": 3,
}
WAIT_OPCODE = 0x82E  # of griddepcontrol.wait, in the low 12 bits of an instruction of 16 bytes
FATBIN_MAGIC = struct.pack("<I", 0xBA55ED50)
PTX, ELF = 1, 2


def entries(data):
    """(kind, architecture, whether it is architecture-specific, as sm_90a, bytes) of each piece of device code in a binary. A
    fatbin is {u32 magic, u16 version, u16 header bytes, u64 bytes that follow}, then pieces of {u16 kind, u16 version, u32 header
    bytes, u64 bytes} with the architecture at byte 28 and flags at byte 40."""
    at = data.find(FATBIN_MAGIC)
    while at >= 0:
        _, _, header, size = struct.unpack_from("<IHHQ", data, at)
        piece, end = at + header, at + header + size
        while header == 16 and piece < end <= len(data):
            kind, _, piece_header, piece_size = struct.unpack_from("<HHIQ", data, piece)
            (arch,), (flags,) = struct.unpack_from("<I", data, piece + 28), struct.unpack_from("<I", data, piece + 40)
            yield kind, arch, bool(flags & 0x100000), data[piece + piece_header:piece + piece_header + piece_size]
            piece += piece_header + piece_size
        at = data.find(FATBIN_MAGIC, at + 4)


def kernels_of(elf):
    """(mangled name, instructions) of each kernel of an ELF file."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    sections = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(count)]
    strings = sections[names][4]
    for name, _, _, _, offset, length in sections:
        text = elf[strings + name:elf.index(b"\0", strings + name)].decode()
        if text.startswith(".text."):
            yield text[len(".text."):], elf[offset:offset + length]


def check_waits(folder):
    """Errors; None where there is no code for sm_90."""
    waits, all_kernels = {}, False  # by mangled name; whether those for sm_90, not sm_90a alone, were compiled for it
    for path in sorted(pathlib.Path(folder).rglob("*.cu.o")):
        for kind, arch, specific, elf in entries(path.read_bytes()):
            if kind != ELF or arch != 90 or not elf.startswith(b"\x7fELF") or "_test" in path.name:  # or compressed
                continue
            all_kernels = all_kernels or not specific
            for name, code in kernels_of(elf):
                waits[name] = sum(struct.unpack_from("<H", code, at)[0] & 0xFFF == WAIT_OPCODE for at in range(0, len(code), 16))
    if not waits:
        return None
    errors, found = [], set()
    for mangled, name in short_names(sorted(waits)).items():
        key = name if name in DEPENDENT else name.partition("<")[0]
        least = DEPENDENT.get(key)
        found.add(key)
        if least is None and waits[mangled] > 0:
            errors.append(f"{name} waits for the kernels in front of it but is not in the list of check_binary.py")
        elif least is not None and waits[mangled] < least:
            errors.append(f"{name} has {waits[mangled]} griddepcontrol.wait; it is launched early and needs {least}")
    missing = sorted(DEPENDENT.keys() - found) if all_kernels else []
    return errors + [f"there is no kernel {name}, which the list of check_binary.py has" for name in missing]


def wanted_archs(asked):
    """The code that nvcc generates for CMAKE_CUDA_ARCHITECTURES."""
    wanted = set()
    for arch in asked:
        number, _, kind = arch.partition("-")
        if not number.isdigit() or kind not in ("", "real", "virtual"):
            sys.exit(f"{arch}: expected an architecture of CMAKE_CUDA_ARCHITECTURES, such as 90-real")
        wanted |= {prefix + number for prefix, of in (("sm_", "real"), ("compute_", "virtual")) if kind in ("", of)}
    return wanted


def check_archs(folder, asked):
    wanted = wanted_archs(asked)
    sources = pathlib.Path(__file__).parents[2] / "src"
    objects = [path for path in sorted(pathlib.Path(folder).rglob("*.cu.o"))
               if (sources / str(path).partition(".dir/")[2][:-2]).is_file()]  # not those of sources that are gone
    wrong = [] if objects else [f"{folder}: no object of a .cu"]
    for path in objects:
        found = {("compute_" if kind == PTX else "sm_") + str(arch) + ("a" if own else "")
                 for kind, arch, own, _ in entries(path.read_bytes()) if kind in (PTX, ELF)}
        expected = HOPPER_ONLY if path.name.endswith("_sm90a.cu.o") else wanted
        if found != expected:
            wrong.append(f"{path} has code for {sorted(found)}; it must be {sorted(expected)}")
    return wrong


def short_names(mangled):
    """Demangled, without the return type, parameters and the common namespaces."""
    names = subprocess.run(["c++filt"], input="\n".join(mangled), check=True, capture_output=True, text=True).stdout
    short = {}
    for name, full in zip(mangled, names.splitlines()):
        full = re.sub(r"\((int|bool|unsigned int|fovea::[\w:]+)\)", "", full)  # casts of template arguments
        full = full.replace("(anonymous namespace)::", "").replace("fovea::cuda::", "")
        short[name] = re.sub(r"\(.*\)$", "", re.sub(r"^void ", "", full)).replace(" ", "")
    return short


def usage(folder):
    """{(kernel, arch): (registers, spilled bytes)}; the bytes of stores and loads are added."""
    found = {}
    logs = [log for log in sorted(pathlib.Path(folder).rglob("*.ptxas")) if "_test" not in str(log.relative_to(folder))]
    for log in logs:
        kernel = None
        for line in log.read_text(encoding="utf-8").splitlines():
            if match := re.search(r"Compiling entry function '(\w+)' for '(\w+)'", line):
                kernel, spilled = (match[1], match[2]), 0
            elif match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
                spilled = int(match[1]) + int(match[2])
            elif kernel and (match := re.search(r"Used (\d+) registers", line)):
                found[kernel] = int(match[1]), spilled
                kernel = None
    names = short_names(sorted({kernel for kernel, _ in found}))
    return {(names[kernel], arch): numbers for (kernel, arch), numbers in found.items()}


def read_table(path):
    table = {}
    for number, line in enumerate(pathlib.Path(path).read_text(encoding="utf-8").splitlines(), 1):
        fields = line.split("#")[0].split()
        if not fields:
            continue
        if len(fields) != 4:
            sys.exit(f"{path}:{number}: expected KERNEL ARCH REGISTERS SPILLED")
        table[fields[0], fields[1]] = int(fields[2]), int(fields[3])
    return table


def check_budgets(folder, path):
    table, found = read_table(path), usage(folder)
    if not found:
        return [f"{folder}: no *.ptxas file names a kernel"]
    errors = []
    for key, (registers, spilled) in sorted(found.items()):
        if key not in table:
            errors.append(f"{key[0]} on {key[1]} has no budget ({registers} registers, {spilled} bytes spilled)")
        elif registers > table[key][0] or spilled > table[key][1]:
            errors.append(f"{key[0]} on {key[1]}: {registers} registers and {spilled} bytes spilled; "
                          f"allowed are {table[key][0]} and {table[key][1]}")
    compiled = {arch for _, arch in found} - HOPPER_ONLY
    return errors + [f"{name} on {arch} is in the table but was not compiled" for name, arch in sorted(table.keys() - found.keys())
                     if arch in compiled | HOPPER_ONLY]


def write_table(folder, path):
    lines = ["# Limits of each kernel: KERNEL ARCH REGISTERS SPILLED (bytes a thread, stores and loads).",
             "# Made by check_binary.py budgets FOLDER TABLE --write; explain every increase."]
    made = usage(folder)
    compiled = {arch for _, arch in made}
    kept = {key: numbers for key, numbers in read_table(path).items() if key[1] not in compiled} if pathlib.Path(path).exists() else {}
    lines += [f"{name} {arch} {registers} {spilled}" for (name, arch), (registers, spilled) in sorted((kept | made).items())]
    pathlib.Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(arguments):
    if arguments[:1] == ["archs"] and len(arguments) >= 3:
        errors = check_archs(arguments[1], arguments[2:])
    elif arguments[:1] == ["waits"] and len(arguments) == 2:
        errors = check_waits(arguments[1])
        if errors is None:
            return 77
    elif arguments[:1] == ["budgets"] and len(arguments) == 4 and arguments[3] == "--write":
        write_table(*arguments[1:3])
        errors = []
    elif arguments[:1] == ["budgets"] and len(arguments) == 3:
        errors = check_budgets(*arguments[1:])
    else:
        sys.exit(__doc__)
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
