// Selects an attention backend, runs it on a batch of two sequences with a paged KV cache, and prints both.
//
//   embed [BACKEND]     a name, "auto" (the default) or "prefill,decode"
#include <fovea/attention.h>
#include <fovea/attention_backend.h>
#include <fovea/stream.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr int kHeads = 4, kKvHeads = 2, kHeadDim = 16, kPageSize = 4, kPages = 4;

/// Arbitrary numbers, the same on every run.
std::vector<float> wave(size_t n, float step) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i)
    values[i] = std::sin(step * static_cast<float>(i + 1));
  return values;
}

fovea::AttentionSpec make_spec() {
  fovea::AttentionSpec spec;
  spec.num_heads = kHeads;
  spec.num_kv_heads = kKvHeads;
  spec.head_dim = spec.v_head_dim = kHeadDim;
  spec.scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim));
  spec.page_size = kPageSize;
  return spec;
}

/// Keys and values of kPages pages, laid out [page, kv head, slot, d].
fovea::KvView view(const std::vector<float>& k, const std::vector<float>& v) {
  fovea::KvView kv;
  kv.k = k.data();
  kv.v = v.data();
  kv.page_size = kPageSize;
  kv.k_slot_stride = kv.v_slot_stride = kHeadDim;
  kv.k_head_stride = kv.v_head_stride = kPageSize * kHeadDim;
  kv.k_page_stride = kv.v_page_stride = kKvHeads * kPageSize * kHeadDim;
  return kv;
}

/// Scratch on a 64-byte boundary.
struct alignas(64) CacheLine {
  std::byte bytes[64];
};

int fail(const fovea::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.message.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const fovea::AttentionSpec spec = make_spec();
  fovea::AttentionConfig config;
  config.backend = argc > 1 ? argv[1] : "auto";
  auto selection = fovea::select(config, spec, {}, fovea::builtin_backends());
  if (!selection) return fail(selection.error());
  std::puts(fovea::explain(*selection).c_str());

  // Two sequences: the last 3 of 6 tokens, and the last 2 of 5. Pages may lie anywhere.
  const std::vector<int32_t> q_offsets{0, 3, 5}, kv_lens{6, 5}, page_table{2, 0, 3, 1};
  fovea::BatchMeta meta;
  meta.q_offsets = q_offsets;
  meta.kv_lens = kv_lens;
  meta.page_table = page_table;
  meta.page_table_stride = 2;
  const fovea::AttentionLimits limits{.max_seqs = 2, .max_tokens = 8, .max_kv_tokens = 16, .max_kv_len = 8};

  auto stream = fovea::make_cpu_stream(2);
  if (!stream) return fail(stream.error());
  const auto* entry = fovea::builtin_backends().find(*selection->of(spec).prefill.backend);
  const std::unique_ptr<fovea::AttentionBackend> backend = entry->create();
  auto bytes = backend->workspace_bytes(spec, limits);
  if (!bytes) return fail(bytes.error());
  std::vector<CacheLine> scratch(*bytes / sizeof(CacheLine) + 1);
  const fovea::Workspace workspace(scratch.front().bytes, scratch.size() * sizeof(CacheLine));
  auto plan = backend->plan(spec, limits, meta, workspace, **stream);
  if (!plan) return fail(plan.error());

  const size_t cache_size = size_t{kPages} * kKvHeads * kPageSize * kHeadDim;
  const size_t rows = static_cast<size_t>(meta.num_tokens());
  const std::vector<float> q = wave(rows * kHeads * kHeadDim, 0.37f), k = wave(cache_size, 0.11f),
                           v = wave(cache_size, 0.05f);
  std::vector<float> out(rows * kHeads * kHeadDim), lse(rows * kHeads);
  fovea::AttentionArgs args;
  args.q = q.data();
  args.out = out.data();
  args.q_row_stride = args.out_row_stride = kHeads * kHeadDim;
  args.lse = lse.data();
  args.kv = view(k, v);
  if (const fovea::Status done = backend->forward_extend(**plan, args, **stream); !done.ok())
    return fail(done.error());

  for (size_t row = 0; row < rows; ++row) {
    const float* o = &out[row * kHeads * kHeadDim];
    std::printf("row %zu: out", row);
    for (int d = 0; d < 4; ++d)
      std::printf(" %8.5f", static_cast<double>(o[d]));
    std::printf(" ...  lse %8.5f\n", static_cast<double>(lse[row * kHeads]));
  }
  return 0;
}
