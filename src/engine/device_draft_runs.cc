#include "engine/device_draft_runs.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "engine/graph_buckets.h"
#include "ops/op_work.h"
#include "profile/scopes.h"

namespace fovea {
namespace {

constexpr std::chrono::seconds kRunPatience{10};

size_t ints(int64_t count) {
  return static_cast<size_t>(count) * sizeof(int32_t);
}
size_t floats(int64_t rows, int64_t width) {
  return static_cast<size_t>(rows * width) * sizeof(float);
}

Tensor i32_of(const Buffer& buffer) {
  return buffer.tensor(ElementType::i32, {static_cast<int64_t>(buffer.size() / sizeof(int32_t))});
}
/// The bytes of a row array as 32-bit integers.
Tensor row_ints(const Tensor& there) {
  return Tensor::dense(there.data, *there.device, ElementType::i32,
                       {there.elements() / static_cast<int64_t>(sizeof(int32_t))});
}

/// Bytes of each buffer on the device.
struct Sizes {
  size_t drafts, raw, map, kept, states, keep_ids, scratch;

  Sizes(const DeviceDraftRuns::Options& o, int vocab, int logit_rows, DeviceQueue& queue)
      : drafts(ints(o.slots)),
        raw(o.tokens.empty() ? 0 : ints(o.slots)),
        map(ints(static_cast<int64_t>(o.tokens.size()))),
        kept(floats(o.kept_rows, o.width)),
        states(std::max(floats(o.max_rows, o.width), floats(o.max_rows, o.own_width))),
        keep_ids(ints(o.kept_rows)),
        scratch(static_cast<size_t>(queue.sample_scratch_bytes(logit_rows, vocab))) {}
  int64_t total() const {
    return static_cast<int64_t>(drafts + raw + map + kept + states + keep_ids + scratch);
  }
};

}  // namespace

int64_t DeviceDraftRuns::bytes(const Options& options, int vocab, int logit_rows, DeviceQueue& queue) {
  return Sizes(options, vocab, logit_rows, queue).total();
}

DeviceDraftRuns::DeviceDraftRuns(ModelRunner& runner, Ops& ops, DeviceQueue& queue, int logit_rows,
                                 Options options)
    : runner_(runner), ops_(ops), queue_(queue), options_(std::move(options)) {
  const Sizes sizes(options_, runner.vocab_size(), logit_rows, queue);
  Device& device = queue.device();
  drafts_ = Buffer(device, sizes.drafts);
  raw_ = Buffer(device, sizes.raw);
  map_ = Buffer(device, sizes.map);
  kept_ = Buffer(device, sizes.kept);
  states_ = Buffer(device, sizes.states);
  keep_ids_ = Buffer(device, sizes.keep_ids);
  scratch_ = Buffer(device, sizes.scratch);
  host_drafts_ = HostBuffer(device, sizes.drafts);
  host_keep_ids_ = HostBuffer(device, kKeeps * sizes.keep_ids);
}

DeviceDraftRuns::~DeviceDraftRuns() {
  if (!failed_) (void)queue_.device().synchronize(queue_.stream());
}

Status DeviceDraftRuns::start() {
  Device& device = queue_.device();
  Stream& stream = queue_.stream();
  // Rows that nobody asks for may read drafts that no run has made: they must be ids all the same.
  const std::vector<int32_t> zeros(static_cast<size_t>(options_.slots));
  const std::vector<int32_t> none(static_cast<size_t>(options_.slots), -1);
  Status status = device.copy_from_host(drafts_.data(), zeros.data(), drafts_.size(), stream);
  if (status && raw_.size() > 0)
    status = device.copy_from_host(raw_.data(), none.data(), raw_.size(), stream);
  if (status && map_.size() > 0)
    status = device.copy_from_host(map_.data(), options_.tokens.data(), map_.size(), stream);
  Status done = device.synchronize(stream);
  FOVEA_RETURN_IF_ERROR(status);
  return done;
}

bool DeviceDraftRuns::wants_all_logits(int rows) const {
  return !capture_failed_ && bucket_for(options_.buckets, rows) > 0;
}

void DeviceDraftRuns::begin(std::span<const std::span<const float>>) {}

Status DeviceDraftRuns::keep(std::span<const int32_t> rows, int first) {
  if (rows.empty()) return {};
  const auto count = static_cast<int64_t>(rows.size());
  FOVEA_CHECK(first >= 0 && first + count <= options_.kept_rows);
  std::byte* const ids = host_keep_ids_.data() + keeps_++ % kKeeps * ints(options_.kept_rows);
  std::memcpy(ids, rows.data(), rows.size_bytes());
  FOVEA_RETURN_IF_ERROR(
      queue_.device().copy_from_host(keep_ids_.data(), ids, rows.size_bytes(), queue_.stream()));
  OpQueue ops(ops_, queue_.stream());
  const Tensor kept = kept_.tensor(ElementType::f32, {options_.kept_rows, options_.width});
  ops.gather_rows(options_.step, i32_of(keep_ids_).first_rows(count), kept.slice(0, first, count));
  return ops.status();
}

/// The rows of the graph that the run runs in; 0 = none.
int DeviceDraftRuns::bucket_of(const Run& run) const {
  if (capture_failed_) return 0;
  const int seqs = run.batch.meta().num_seqs(), rows = static_cast<int>(run.from.size());
  if (run.batch.split().num_decodes < seqs || run.batch.num_logit_rows() < rows) return 0;
  const int bucket = bucket_for(options_.buckets, rows);
  return bucket > rows && seqs == options_.max_seqs ? 0 : bucket;  // no sequence is left for the filling
}

Status DeviceDraftRuns::run(const Run& run) {
  if (queued_ >= kOpenRuns) FOVEA_RETURN_IF_ERROR(wait());
  const int bucket = bucket_of(run);
  FOVEA_RETURN_IF_ERROR(upload(run, bucket));
  ++queued_;
  return bucket > 0 ? compute_in_graph(run.source, bucket) : compute(run.source);
}

Status DeviceDraftRuns::upload(const Run& run, int bucket) {
  const size_t rows = std::max(run.from.size(), static_cast<size_t>(bucket));
  from_.assign(run.from.begin(), run.from.end());
  from_.resize(rows, -1);
  state_rows_.assign(run.states.begin(), run.states.end());
  if (run.source != States::none) state_rows_.resize(rows, 0);
  sample_rows_.clear();
  for (const int32_t slot : run.slots) {
    cuda::SampleRow& row = sample_rows_.emplace_back();
    row.temperature = 0;
    row.slot = slot;
    if (slot >= 0) row.logits_row = static_cast<int32_t>(sample_rows_.size()) - 1;
  }
  sample_rows_.resize(std::max(sample_rows_.size(), static_cast<size_t>(bucket)));
  const RowArray arrays[] = {
      {from_.data(), sizeof(int32_t), from_.size(), false, &from_there_},
      {state_rows_.data(), sizeof(int32_t), state_rows_.size(), false, &state_rows_there_},
      {sample_rows_.data(), kLogitRowBytes, sample_rows_.size(), true, &sample_rows_there_}};
  const profile::Op op(queue_.stream(), "copy_arrays");
  return runner_.upload(run.batch, queue_.stream(), {.row_arrays = arrays, .rows = bucket});
}

Status DeviceDraftRuns::compute(States source) {
  OpQueue ops(ops_, queue_.stream());
  const Tensor drafts = i32_of(drafts_);
  ops.take_tokens(drafts, row_ints(from_there_), runner_.tensors().token_ids);
  if (source != States::none) {
    const int64_t width = source == States::own ? options_.own_width : options_.width;
    const Tensor from = source == States::step   ? options_.step
                        : source == States::kept ? kept_.tensor(ElementType::f32, {options_.kept_rows, width})
                                                 : runner_.hidden_there();
    const Tensor to = states_.tensor(ElementType::f32, {options_.max_rows, width});
    ops.gather_rows(from, row_ints(state_rows_there_), to.first_rows(runner_.tensors().token_ids.size(0)));
    runner_.set_states(to);
  }
  FOVEA_RETURN_IF_ERROR(ops.status());
  FOVEA_RETURN_IF_ERROR(runner_.launch(queue_.stream()));
  const Tensor logits = runner_.logits();
  if (logits.size(0) == 0) return {};
  const bool mapped = map_.size() > 0;
  cuda::SampleArgs args;
  args.logits = logits.as<float>();
  args.row_stride = logits.stride(0);
  args.width = runner_.vocab_size();
  args.vocab = mapped ? args.width : std::min(args.width, options_.sampled_vocab);
  args.rows = static_cast<const cuda::SampleRow*>(sample_rows_there_.data);
  args.num_rows = static_cast<int32_t>(logits.size(0));
  args.tokens = i32_of(mapped ? raw_ : drafts_).as<int32_t>();
  args.failed_token = 0;
  args.scratch = scratch_.data();
  {
    const profile::Op op(queue_.stream(), "sample", -1, [&] { return rows_work({&logits}); });
    FOVEA_RETURN_IF_ERROR(queue_.sample(args));
  }
  if (mapped) ops.take_tokens(i32_of(map_), i32_of(raw_), drafts);
  return ops.status();
}

/// The first run of a kind and bucket runs at once, which loads its kernels; then it is captured.
Status DeviceDraftRuns::compute_in_graph(States source, int bucket) {
  const bool eager = profile::watched(profile::kEager);
  if (const auto graph = graphs_.find({source, bucket}); graph != graphs_.end() && !eager) {
    ++replays_;
    const profile::Op op(queue_.stream(), profile::kReplay);
    return graph->second->replay();
  }
  FOVEA_RETURN_IF_ERROR(compute(source));
  if (eager) return {};
  auto captured = queue_.capture([&] { return compute(source); });
  if (captured) {
    graphs_[{source, bucket}] = *std::move(captured);
    return {};
  }
  FOVEA_RETURN_IF_ERROR(queue_.health());
  capture_failed_ = true;  // the same kernels run without graphs
  FOVEA_LOG(warning) << "drafts run without CUDA graphs: " << captured.error().message;
  return {};
}

/// Waits until all runs are done. A device that stands still is not used again.
Status DeviceDraftRuns::wait() {
  FOVEA_RETURN_IF_ERROR(queue_.mark(DeviceQueue::kDraftMark));
  const auto since = std::chrono::steady_clock::now();
  while (true) {
    const auto reached = queue_.reached(DeviceQueue::kDraftMark);
    if (!reached) {
      failed_ = true;
      return reached.error();
    }
    if (*reached) break;
    if (std::chrono::steady_clock::now() - since > kRunPatience) {
      failed_ = true;
      return Error{ErrorCode::internal, "its runs have not ended after " +
                                            std::to_string(kRunPatience.count()) +
                                            " seconds: the device stands still; restart the program"};
    }
    std::this_thread::yield();
  }
  queued_ = 0;
  return {};
}

Result<std::span<const int32_t>> DeviceDraftRuns::drafts(int count) {
  FOVEA_CHECK(count >= 0 && count <= options_.slots);
  FOVEA_RETURN_IF_ERROR(
      queue_.device().copy_to_host(host_drafts_.data(), drafts_.data(), ints(count), queue_.stream()));
  FOVEA_RETURN_IF_ERROR(wait());
  return std::span<const int32_t>(reinterpret_cast<const int32_t*>(host_drafts_.data()),
                                  static_cast<size_t>(count));
}

}  // namespace fovea
