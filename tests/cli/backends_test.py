#!/usr/bin/env python3
"""fovea backends: vLLM's table as first published, row by row, against the program's output.

Usage: backends_test.py PROGRAM
"""
import json
import subprocess
import sys
import unittest

PROGRAM = sys.argv[1]

HALF = "fp16, bf16"
FLOATS = "fp16, bf16, fp32"
BF16 = "auto, bfloat16"
E4M3 = "auto, bfloat16, fp8, fp8_e4m3"
FP8S = "auto, bfloat16, fp8, fp8_e4m3, fp8_e5m2"
ENCODER_ONLY = "Decoder, Encoder Only"
WIDE = "32, 64, 96, 128, 160, 192, 224, 256"

# Name, version: dtypes, KV dtypes, block sizes, head sizes, sink, MM prefix, DCP, types, compute capability.
STANDARD = {
    ("FLASHINFER", "Native"): (HALF, FP8S, "16, 32, 64", "64, 128, 256", False, False, True, "Decoder", "7.x-9.x"),
    ("FLASHINFER", "TRTLLM"): (HALF, FP8S, "16, 32, 64", "64, 128, 256", True, False, True, "Decoder", "10.x"),
    ("FLASH_ATTN", "FA2"): (HALF, BF16, "%16", "Any", False, False, True, "All", "≥8.0"),
    ("FLASH_ATTN", "FA3"): (HALF, FP8S, "%16", "Any", True, False, True, "All", "9.x"),
    ("FLASH_ATTN_DIFFKV", ""): (HALF, "auto", "Any", "Any", False, False, True, "Decoder", "Any"),
    ("FLEX_ATTENTION", ""): (FLOATS, BF16, "Any", "Any", False, True, False, ENCODER_ONLY, "Any"),
    ("ROCM_AITER_FA", ""): (HALF, "auto", "16, 32", "64, 128, 256", False, False, False, "Decoder", "N/A"),
    ("ROCM_AITER_UNIFIED_ATTN", ""): (HALF, "auto", "Any", "Any", False, False, False, "Decoder", "N/A"),
    ("ROCM_ATTN", ""): (FLOATS, "auto", "16, 32, 544", WIDE, False, False, False, "Decoder", "N/A"),
    ("TREE_ATTN", ""): (HALF, "auto", "%16", WIDE, False, False, False, "Decoder", "Any"),
    ("TRITON_ATTN", ""): (FLOATS, FP8S, "%16", "Any", True, True, False, "All", "Any"),
}
# vLLM's row of CPU_ATTN is listed next to Fovea's.
CPU_ATTN = (FLOATS, "auto", "Any", "32, 64, 80, 96, 112, 128, 160, 192, 224, 256", False, False, False, "All", "N/A")

# Name: dtypes, KV dtypes, block sizes, head sizes, sink, sparse, MM prefix, DCP, types, compute capability. Two
# ticks are corrected: FLASHINFER_MLA has DCP, and ROCM_AITER_MLA_SPARSE is sparse.
MLA = {
    "CUTLASS_MLA": (HALF, E4M3, "128", "Any", False, False, False, True, "Decoder", "10.x"),
    "FLASHINFER_MLA": (HALF, E4M3, "32, 64", "Any", False, False, False, True, "Decoder", "10.x"),
    "FLASHINFER_MLA_SPARSE": (HALF, BF16, "32, 64", "576", False, True, False, False, "Decoder", "10.x"),
    "FLASHMLA": (HALF, E4M3, "64", "Any", False, False, False, True, "Decoder", "9.x-10.x"),
    "FLASHMLA_SPARSE": ("bf16", "auto, bfloat16, fp8_ds_mla", "64", "576", False, True, False, False, "Decoder", "9.x-10.x"),
    "FLASH_ATTN_MLA": (HALF, BF16, "%16", "Any", False, False, False, True, "Decoder", "9.x"),
    "ROCM_AITER_MLA": (HALF, "auto", "1", "Any", False, False, False, False, "Decoder", "N/A"),
    "ROCM_AITER_MLA_SPARSE": (HALF, "auto", "Any", "576", False, True, False, False, "Decoder", "N/A"),
    "ROCM_AITER_TRITON_MLA": (HALF, "auto", "Any", "Any", False, False, False, False, "Decoder", "N/A"),
    "TRITON_MLA": (HALF, BF16, "Any", "Any", False, False, False, True, "Decoder", "Any"),
}

# Name: description, compute capability, enable, disable, notes.
MLA_PREFILL = {
    "TRTLLM_RAGGED": ("TensorRT-LLM ragged attention", "10.x", "Default on SM100", "-ac.use_trtllm_ragged_deepseek_prefill=0",
                      "DeepSeek R1 dims only"),
    "FLASHINFER": ("FlashInfer CUTLASS backend", "10.x", "-ac.disable_flashinfer_prefill=0", "-ac.disable_flashinfer_prefill=1",
                   "DeepSeek R1 dims only"),
    "CUDNN": ("cuDNN-based attention", "10.x", "-ac.use_cudnn_prefill=1", "-ac.use_cudnn_prefill=0", ""),
    "FLASH_ATTN": ("FlashAttention varlen (FA2/FA3)", "Any", "Default fallback", "Use other backends", "FA3 on SM90, FA2 otherwise"),
}

PRIORITIES = {
    ("Blackwell", False): ["FLASHINFER", "FLASH_ATTN", "TRITON_ATTN", "FLEX_ATTENTION"],
    ("Ampere/Hopper", False): ["FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION"],
    ("Blackwell", True): ["FLASHINFER_MLA", "CUTLASS_MLA", "FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA", "FLASHMLA_SPARSE",
                          "FLASHINFER_MLA_SPARSE"],
    ("Ampere/Hopper", True): ["FLASH_ATTN_MLA", "FLASHMLA", "FLASHINFER_MLA", "TRITON_MLA", "FLASHMLA_SPARSE"],
    ("CPU", False): ["CPU_ATTN", "TORCH_NATIVE"],
    ("CPU", True): ["CPU_MLA", "TORCH_NATIVE_MLA"],
}

# SGLang's: page size > 1, speculative decoding, MLA, sliding window, multimodal.
SGLANG = {
    "FlashInfer": "yes yes yes yes yes",
    "FA3": "yes yes yes yes yes",
    "Triton": "no yes yes no no",
    "Torch Native": "no no no no no",
    "FlashMLA": "yes yes yes no no",
}
ON_CPU = [("CPU_ATTN", ""), ("TORCH_NATIVE", ""), ("CPU_MLA", ""), ("TORCH_NATIVE_MLA", ""),
          ("CPU_MLA_SPARSE", ""), ("TORCH_NATIVE_MLA_SPARSE", "")]
FLEX = [("FLEX_ATTENTION", "CPU")]
ON_CUDA = [("FLASHINFER", "Native"), ("FLASH_ATTN", "FA2"), ("FLASH_ATTN", "FA3"), ("FLASH_ATTN_DIFFKV", ""), ("TREE_ATTN", ""), ("TRITON_ATTN", ""),
           ("FLASHINFER_MLA", ""), ("FLASHMLA", ""), ("FLASH_ATTN_MLA", ""), ("TRITON_MLA", ""), ("FLASHINFER_MLA_SPARSE", ""),
           ("FLASHMLA_SPARSE", "")]
MINI_SGLANG_PAGES = {"fa": "Any size", "fi": "1 only", "trtllm": "16, 32, 64 only"}


def run(*args):
    result = subprocess.run([PROGRAM, "backends", *args], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, f"{args}: {result.returncode} {result.stderr}"
    return result.stdout


class Backends(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.json = json.loads(run("--json"))
        cls.rows = {(row["name"], row["version"]): row for row in cls.json["backends"]}

    def values(self, columns, ids):
        out = []
        for column in ids:
            value = columns[column]
            if column == "compute_capability":
                value = "N/A" if value is None else value["text"]
            out.append(value["text"] if isinstance(value, dict) else value)
        return tuple(out)

    def test_standard_rows(self):
        ids = ["dtypes", "kv_dtypes", "page_sizes", "head_dims", "sink", "spans", "dcp", "types", "compute_capability"]
        for key, expected in STANDARD.items():
            # If the other documents list more, the table's row is listed next to Fovea's.
            self.assertEqual(self.values(self.rows[key].get("documented", self.rows[key]["columns"]), ids), expected, key)
            self.assertIs(self.rows[key]["columns"]["mla"], False, key)
        self.assertEqual(self.values(self.rows["CPU_ATTN", ""]["documented"], ids), CPU_ATTN)
        self.assertIs(self.rows["CPU_ATTN", ""]["columns"]["sink"], True)
        for key in (("FLASH_ATTN", "FA2"), ("FLASH_ATTN", "FA3"), ("FLASHINFER", "Native")):
            self.assertEqual(self.rows[key]["columns"]["page_sizes"]["text"], "Any", key)
        self.assertEqual(self.rows["FLASHINFER", "Native"]["columns"]["compute_capability"]["text"], "≥8.0")
        self.assertEqual(self.rows["FLASH_ATTN", "FA3"]["columns"]["compute_capability"]["text"], "9.0")

    def test_mla_rows(self):
        ids = ["dtypes", "kv_dtypes", "page_sizes", "head_dims", "sink", "sparse", "spans", "dcp", "types", "compute_capability"]
        for name, expected in MLA.items():
            row = self.rows[name, ""]
            self.assertEqual(self.values(row.get("documented", row["columns"]), ids), expected, name)
            self.assertIs(row["columns"]["mla"], True, name)

    def test_mla_prefill_rows(self):
        self.assertEqual([row["name"] for row in self.json["mla_prefill"]], list(MLA_PREFILL))
        for row in self.json["mla_prefill"]:
            said = (row["description"], row["columns"]["compute_capability"]["text"], row["enable"], row["disable"], row["notes"])
            self.assertEqual(said, MLA_PREFILL[row["name"]])

    def test_priorities(self):
        lists = {(row["on"].split(" (")[0], row["mla"]): row["backends"] for row in self.json["priorities"]
                 if "," not in row["on"]}
        for key, expected in PRIORITIES.items():
            self.assertEqual(lists[key], expected, key)

    def test_other_engines_tables(self):
        peers = self.json["peers"]
        sglang = {row["title"]: " ".join(row["values"].values()) for row in peers["sglang"]["rows"]}
        for name, ticks in SGLANG.items():
            self.assertEqual(sglang[name], ticks, name)
        self.assertEqual(list(sglang)[5:], ["TRTLLM MLA", "Ascend", "Wave"])
        pages = {row["title"]: row["values"]["Page Size Support"] for row in peers["mini_sglang_pages"]["rows"]}
        self.assertEqual(pages, MINI_SGLANG_PAGES)

    def test_pairs_and_families(self):
        rows = self.rows
        self.assertEqual(rows["TRTLLM_MLA", ""]["prefill_partner"], "FLASHINFER_MLA")
        self.assertEqual(rows["TRTLLM_MLA", ""]["columns"]["phases"]["values"], ["decode"])
        self.assertEqual(rows["TRITON_ATTN", ""]["mla_sibling"], "TRITON_MLA")
        self.assertIn("fa3", rows["FLASH_ATTN", "FA3"]["aliases"])
        self.assertEqual(rows["TRTLLM_MHA", ""]["columns"]["page_sizes"]["values"], [16, 32, 64])

    def test_every_row_has_every_column_and_says_why_it_is_absent(self):
        ids = [column["id"] for column in self.json["columns"]]
        self.assertEqual(len(ids), len(set(ids)))
        for key, row in self.rows.items():
            self.assertEqual(list(row["columns"]), ids, key)
            self.assertEqual(row["built"], "why_not" not in row, key)
            self.assertTrue(row["description"], key)
        built = [key for key, row in self.rows.items() if row["built"]]
        self.assertIn(built, (ON_CPU + FLEX, ON_CPU + ON_CUDA + FLEX))
        for key in ON_CUDA:
            self.assertIn("documented", self.rows[key], key)
            if built == ON_CPU + FLEX:
                self.assertIn("built without CUDA", self.rows[key]["why_not"], key)

    def test_sets_are_whole_and_what_is_not_said_is_null(self):
        columns = self.rows["FLASH_ATTN", "FA2"]["columns"]
        documented = self.rows["FLASH_ATTN", "FA2"]["documented"]
        self.assertEqual(documented["page_sizes"]["range"], {"first": 16, "last": None, "step": 16})
        self.assertEqual(columns["compute_capability"], {"min": "8.0", "max": None, "text": "≥8.0"})
        self.assertTrue(columns["softcap"])
        self.assertIsNone(self.rows["FLASH_ATTN", "FA4"]["columns"]["softcap"])
        self.assertIsNone(self.rows["FLASH_ATTN", "FA4"]["columns"]["kv_layouts"])
        cpu = self.rows["CPU_ATTN", ""]["columns"]
        self.assertEqual(cpu["head_dims"]["range"], {"first": 16, "last": 512, "step": 8})
        self.assertEqual(cpu["invariance"]["values"], ["run", "batch", "page_size", "prefill_chunks", "chunking", "threads"])
        unsaid = {column for column, value in cpu.items() if value is None}
        self.assertEqual(unsaid, {"compute_capability"})

    def test_table_for_people(self):
        lines = run().splitlines()
        named = {line.split()[0] for line in lines if line.strip()}
        for name, _ in self.rows:
            self.assertIn(name, named)
        cpu = next(line for line in lines if line.startswith("CPU_ATTN"))
        self.assertTrue(cpu.endswith("yes"), cpu)
        trtllm = next(line for line in lines if line.startswith("TRTLLM_MHA"))
        self.assertRegex(trtllm, r"trtllm_mha, trtllm +cuda 10\.x .*16, 32, 64 +Any +no: its Blackwell kernels")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
