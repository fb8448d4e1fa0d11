#include "conformance/run.h"

#include <deque>

#include "attention/kv_view.h"
#include "backends/torch_native/torch_native.h"
#include "base/thread_pool.h"
#include "conformance/textbook_mask.h"

namespace fovea::conformance {

Output run(AttentionBackend& backend, const Problem& problem, const Layout& layout, Machine& machine,
           bool want_lse) {
  const Problem* const layers[] = {&problem};
  return run_layers(backend, layers, layout, machine, want_lse).front();
}

Output run(AttentionBackend& backend, const Problem& problem, const Layout& layout, ThreadPool& pool,
           bool want_lse) {
  HostMachine machine(pool);
  return run(backend, problem, layout, machine, want_lse);
}

namespace {

Error with_prefix(const char* where, const Error& error) {
  return {error.code, std::string(where) + ": " + error.message};
}

/// run_layers() for the batches of each layer, which are already laid out.
Result<std::vector<Output>> run_batches(AttentionBackend& backend, const AttentionSpec& spec, Phase phase,
                                        const std::deque<Batch>& batches, const Layout& layout,
                                        Machine& machine, bool want_lse) {
  const Batch& first = batches.front();
  FOVEA_TRY(session, machine.open_session());
  const Result<size_t> bytes = backend.workspace_bytes(spec, first.limits());
  if (!bytes) return with_prefix("workspace_bytes", bytes.error());
  FOVEA_TRY(scratch, Scratch::create(*bytes, *session));
  FOVEA_TRY(step, first.upload(*session));
  const auto plan = backend.plan(spec, first.limits(), step.meta, scratch.workspace(), session->stream());
  if (!plan) return with_prefix("plan", plan.error());

  struct Layer {
    Target target;
    Target::Bytes bytes;
    const std::byte* guard;
  };
  std::vector<Layer> layers;
  for (const Batch& batch : batches) {
    AttentionArgs args = step.args;
    if (&batch != &first) {
      FOVEA_TRY(q, batch.upload_queries(*session));
      args.q = q;
    }
    FOVEA_TRY(target,
              Target::create(spec, first.meta().num_tokens(), layout.row_padding, want_lse, *session));
    target.put_into(args);
    const Status status = phase == Phase::decode ? backend.forward_decode(**plan, args, session->stream())
                                                 : backend.forward_extend(**plan, args, session->stream());
    if (!status) return with_prefix("forward", status.error());
    FOVEA_TRY(written, target.fetch(*session));
    FOVEA_TRY(guard, scratch.fetch(*session));
    layers.push_back({target, written, guard});
  }
  // Page ids that no row needs may be anything.
  const Status planned =
      backend.check_plan(**plan, layout.poison_invisible ? -1 : first.num_pages(), session->stream());
  if (!planned) return with_prefix("check_plan", planned.error());
  FOVEA_RETURN_IF_ERROR(session->finish());
  std::vector<Output> outputs;
  for (const Layer& layer : layers) {
    outputs.push_back(layer.target.read(layer.bytes));
    if (!Scratch::intact(layer.guard)) outputs.back().error = "wrote past the workspace";
    outputs.back().launched = (*plan)->launched();
  }
  return outputs;
}

}  // namespace

std::vector<Output> run_layers(AttentionBackend& backend, std::span<const Problem* const> layers,
                               const Layout& layout, Machine& machine, bool want_lse) {
  AttentionSpec spec = layers.front()->spec;
  set_layout(spec, layout.kv);
  std::deque<Batch> batches;  // only the queries of the later ones are used
  for (const Problem* layer : layers)
    batches.emplace_back(*layer, layout);
  want_lse = want_lse && backend.info().capability.features.has(Feature::lse);
  auto outputs = run_batches(backend, spec, layers.front()->phase, batches, layout, machine, want_lse);
  if (outputs) return *std::move(outputs);
  Output none;
  none.error = outputs.error().message;
  return std::vector<Output>(layers.size(), none);
}

namespace {

/// Lists as a packed mask.
void pack_lists(const Problem& problem, Problem& exact) {
  exact.spec.mask = {};
  exact.spec.mask.causal = false;
  exact.spec.mask.packed = true;
  for (size_t b = 0; b < problem.seqs.size(); ++b) {
    const Sequence& s = problem.seqs[b];
    std::vector<uint8_t>& packed = exact.seqs[b].packed;
    packed.assign(static_cast<size_t>((int64_t{s.n_q} * s.n_k + 7) / 8), 0);
    for (int i = 0; i < s.n_q; ++i)
      for (int j = 0; j < s.n_k; ++j) {
        const int64_t bit = int64_t{i} * s.n_k + j;
        if (textbook_sees(problem.spec.mask, problem, s, i, j))
          packed[static_cast<size_t>(bit / 8)] |= static_cast<uint8_t>(1u << (bit % 8));
      }
  }
}

}  // namespace

Output reference(const Problem& problem, ThreadPool& pool) {
  Problem exact = problem;
  exact.spec.dtype = DType::f32;
  exact.spec.kv_dtype = KvCacheDType::float32;
  exact.spec.fp64_accumulate = true;
  exact.spec.page_size = 16;
  exact.spec.needs = {};
  if (exact.spec.use_sparse) pack_lists(problem, exact);
  exact.spec.use_mla = exact.spec.use_sparse = false;  // Sequence::v is a copy of V in the records
  Layout plain;
  plain.poison_invisible = false;
  return run(*make_torch_native(), exact, plain, pool);
}

std::string conform(AttentionBackend& backend, const Problem& problem, const Layout& layout,
                    ThreadPool& pool) {
  HostMachine machine(pool);
  return conform(backend, problem, layout, machine, pool);
}

std::string conform(AttentionBackend& backend, const Problem& problem, const Layout& layout, Machine& machine,
                    ThreadPool& pool) {
  const Output want = reference(problem, pool), textbook = naive(problem);
  std::string failure = find_disagreement(problem, want, textbook);
  if (failure.empty()) failure = judge(problem, run(backend, problem, layout, machine), want, textbook);
  if (failure.empty()) return {};
  return std::string(backend.info().name) + ": " + failure + "in " + problem.describe();
}

std::vector<Isa> isas_of(const BackendInfo& backend) {
  // Plain loops, kernels from a backend library, and kernels that don't run on the CPU.
  if (backend.name.starts_with("TORCH_NATIVE") || !backend.library.empty() ||
      backend.capability.device != DeviceKind::cpu)
    return {detect_isa()};
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512})
    if (isa <= detect_isa()) isas.push_back(isa);
  return isas;
}

void each_isa(const BackendInfo& backend, const std::function<void()>& fn) {
  for (const Isa isa : isas_of(backend)) {
    set_isa(isa);
    fn();
  }
}

std::vector<const BackendRegistry::Entry*> cpu_backends() {
  std::vector<const BackendRegistry::Entry*> out;
  for (const auto& entry : builtin_backends().entries())
    if (entry.create && entry.info->capability.device == DeviceKind::cpu) out.push_back(&entry);
  return out;
}

}  // namespace fovea::conformance
