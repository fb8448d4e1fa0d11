#include "engine/device_executor.h"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "engine/graph_buckets.h"
#include "ops/op_work.h"

namespace fovea {
namespace {

constexpr auto kResultBytes = static_cast<int64_t>(sizeof(cuda::SampleResult));

int64_t token_bytes(int ring, int max_seqs) {
  return int64_t{ring} * max_seqs * static_cast<int64_t>(sizeof(int32_t));
}

/// The bytes of `there`, which upload() has copied, as 32-bit integers.
Tensor as_i32(const Tensor& there) {
  return Tensor::dense(there.data, *there.device, ElementType::i32,
                       {there.elements() / static_cast<int64_t>(sizeof(int32_t))});
}

}  // namespace

DeviceExecutor::Bytes DeviceExecutor::bytes(const Options& options, int vocab, DeviceQueue& queue) {
  Bytes bytes;
  bytes.results = token_bytes(kRing, options.max_seqs) + options.max_logit_rows * kResultBytes;
  bytes.edits = options.max_seqs * EditSlots::slot_bytes(options.sampled_vocab, options.edit_list_bytes);
  bytes.scratch = queue.sample_scratch_bytes(options.max_logit_rows, vocab);
  bytes.masked = static_cast<int64_t>(masked_bytes(options)) + options.max_seqs * kResultBytes;
  if (options.ngram.most > 0) bytes.history = HistorySlots::bytes(options.max_seqs, options.ngram.max_len);
  return bytes;
}

size_t DeviceExecutor::masked_row_bytes(const Options& options) {
  return static_cast<size_t>(options.max_seqs) * sizeof(cuda::SampleRow);
}

size_t DeviceExecutor::masked_bytes(const Options& options) {
  const size_t words = TokenConstraint::mask_words(static_cast<size_t>(options.sampled_vocab));
  return masked_row_bytes(options) + static_cast<size_t>(options.max_seqs) * words * sizeof(uint32_t);
}

DeviceExecutor::DeviceExecutor(ModelRunner& runner, Ops& ops, DeviceQueue& queue, ThreadPool& pool,
                               const Options& options)
    : runner_(runner),
      queue_(queue),
      ops_(ops),
      pool_(pool),
      options_(options),
      tokens_(queue.device(), static_cast<size_t>(token_bytes(kRing, options.max_seqs))),
      results_(queue.device(), static_cast<size_t>(options.max_logit_rows * kResultBytes)),
      scratch_(queue.device(),
               static_cast<size_t>(queue.sample_scratch_bytes(options.max_logit_rows, runner.vocab_size()))),
      masked_(queue.device(), masked_bytes(options)),
      masked_results_(queue.device(), static_cast<size_t>(options.max_seqs * kResultBytes)),
      edits_(queue.device(), options.max_seqs,
             EditSlots::slot_bytes(options.sampled_vocab, options.edit_list_bytes), options.sampled_vocab),
      host_results_(queue.device(),
                    static_cast<size_t>(int64_t{kRing} * options.max_logit_rows * kResultBytes)),
      host_logits_(kRing),
      samplers_(static_cast<size_t>(pool.size())) {
  FOVEA_CHECK(options.overlap.open_steps < kRing);
  if (options.ngram.most > 0) history_.emplace(queue.device(), options.max_seqs, options.ngram.max_len);
}

DeviceExecutor::~DeviceExecutor() {
  if (!failure_) (void)queue_.device().synchronize(queue_.stream());
}

bool DeviceExecutor::samples_on_host(const SequenceSampling& sampling) const {
  const EditSlots::Need need = edits_.need(sampling.processor);
  if (need == EditSlots::Need::host) return true;
  if (options_.drafts) return need != EditSlots::Need::none || sampling.constraint != nullptr;
  // With more open steps, the logits of a row would be overwritten before the token in front of it is known.
  return sampling.constraint != nullptr && options_.overlap.open_steps > 2;
}

Ticket DeviceExecutor::submit(const Step& step) {
  FOVEA_CHECK(static_cast<int>(open_.size()) < options_.overlap.open_steps);
  draw_all_masked();  // before the step overwrites their logits
  counts_.overlapped += !open_.empty();
  open_.push_back(std::make_unique<OpenStep>());
  OpenStep& open = *open_.back();
  open.number = ++submitted_;
  open.sequences.assign(step.sequences.begin(), step.sequences.end());
  open.rows = LogitRows(open.sequences);
  for (const SequenceStep& sequence : open.sequences) {
    open.ids.push_back(sequence.chunk.sequence->id);
    open.on_host.push_back(sequence.sampling && sequence.chunk.sequence->sampled_on_host);
    (sequence.chunk.decode ? open.decode_rows : open.prefill_rows) += sequence.chunk.count;
  }
  const double planned = runner_.plan_seconds();
  open.status = failure_ ? Status(*failure_) : queue(step, open);
  open.plan_seconds = runner_.plan_seconds() - planned;
  if (!open.status && !failure_) {
    // A refused step leaves the device as it is; on a broken device all later ones fail too.
    if (const Status health = queue_.health(); !health)
      fail({ErrorCode::internal, describe(open, false) + " failed: " + open.status.error().message});
  }
  return {open.number};
}

/// The rows of the graph that the step runs in; 0 = none.
int DeviceExecutor::bucket_of(const Step& step) const {
  if (capture_failed_ || step.batch.encoder().encodes()) return 0;
  const int seqs = step.batch.meta().num_seqs();
  const int rows = static_cast<int>(step.batch.input().token_ids.size());
  if (step.batch.split().num_decodes < seqs || step.batch.num_logit_rows() < rows) return 0;
  const int bucket = bucket_for(options_.buckets, rows);
  return bucket > rows && seqs == options_.max_seqs ? 0 : bucket;  // no sequence is left for the filling
}

Status DeviceExecutor::queue(const Step& step, OpenStep& open) {
  open.bucket = bucket_of(step);
  const bool watched = profile::watched(profile::kOps);
  if (watched) profile::begin_step(describe_step(step, open));
  FOVEA_RETURN_IF_ERROR(open_history(open));
  FOVEA_RETURN_IF_ERROR(collect_rows(step, open));
  if (options_.lora != nullptr)
    FOVEA_RETURN_IF_ERROR(options_.lora->prepare(step.batch, open.bucket, queue_.stream()));
  open.lora = options_.lora != nullptr && options_.lora->used();
  {
    const profile::Op op(queue_.stream(), "copy_arrays");
    FOVEA_RETURN_IF_ERROR(upload(step.batch, open.bucket));
  }
  if (watched) profile::set_attention(runner_.attention_work());
  FOVEA_RETURN_IF_ERROR(queue_.wait_for_copies());  // of the results that the sampler overwrites
  FOVEA_RETURN_IF_ERROR(queue_.mark(mark(open.number, uploaded)));
  if (open.bucket > 0)
    FOVEA_RETURN_IF_ERROR(compute_in_graph(open));
  else
    FOVEA_RETURN_IF_ERROR(compute(&open));
  FOVEA_RETURN_IF_ERROR(copy_logits(open));
  FOVEA_RETURN_IF_ERROR(queue_.mark(mark(open.number, sampled)));
  if (open.rows.size() > 0) {
    const profile::Op op(queue_.stream(), "copy_results");
    FOVEA_RETURN_IF_ERROR(queue_.copy_beside(host_results(open.number), results_.data(),
                                             static_cast<size_t>(open.rows.size() * kResultBytes)));
  }
  if (open.masked.empty()) return queue_.mark_beside(mark(open.number, returned));
  if (std::ranges::all_of(open.masked, [&](const MaskedRow& row) { return is_known(open, row); }))
    return draw_masked(open);
  return {};  // the mark follows with them
}

/// Whether all tokens before that of the row are known. They never will be where an answer has ended.
bool DeviceExecutor::is_known(const OpenStep& open, const MaskedRow& row) {
  const ScheduledChunk& chunk = open.sequences[row.sequence].chunk;
  return chunk.sequence->num_tokens() == chunk.end();
}

/// Queues the draws of the step's rows under constraints, and the mark that ends the step.
Status DeviceExecutor::draw_masked(OpenStep& open) {
  if (open.masked.empty() || open.drawn) return {};
  open.drawn = true;
  const profile::Range range("draw_masked", static_cast<int64_t>(open.masked.size()));
  const size_t bytes = masked_bytes(options_), row_bytes = masked_row_bytes(options_);
  const size_t words = TokenConstraint::mask_words(static_cast<size_t>(options_.sampled_vocab));
  if (!host_masked_) {
    host_masked_ = HostBuffer(queue_.device(), kRing * bytes);
    host_masked_results_ =
        HostBuffer(queue_.device(), static_cast<size_t>(int64_t{kRing} * options_.max_seqs * kResultBytes));
  }
  std::byte* const host = host_masked_.data() + ring(open.number) * bytes;
  auto* const rows = reinterpret_cast<cuda::SampleRow*>(host);
  auto* const masks = reinterpret_cast<uint32_t*>(host + row_bytes);
  const auto fill = [&](int64_t at, int) {
    const auto i = static_cast<size_t>(at);
    const MaskedRow& masked = open.masked[i];
    rows[i] = masked.row;
    if (!is_known(open, masked))
      rows[i].logits_row = -1;  // nobody asks for its token
    else if (open.sequences[masked.sequence].sampling->constraint->fill_mask({masks + i * words, words}))
      rows[i].mask_row = static_cast<int32_t>(at);
  };
  const size_t count = open.masked.size();
  pool_.parallel_tasks(static_cast<int64_t>(count), fill,
                       {static_cast<double>(count) * static_cast<double>(words)});
  counts_.masked += static_cast<int64_t>(count);
  const profile::Op op(queue_.stream(), "sample_masked");
  FOVEA_RETURN_IF_ERROR(queue_.device().copy_from_host(
      masked_.data(), host, row_bytes + count * words * sizeof(uint32_t), queue_.stream()));
  FOVEA_RETURN_IF_ERROR(queue_.wait_for_copies());  // of the results that are overwritten
  cuda::SampleArgs args = sample_args();
  args.rows = reinterpret_cast<const cuda::SampleRow*>(masked_.data());
  args.num_rows = static_cast<int32_t>(count);
  args.masks = reinterpret_cast<const uint32_t*>(masked_.data() + row_bytes);
  args.mask_stride = static_cast<int64_t>(words);
  args.results = reinterpret_cast<cuda::SampleResult*>(masked_results_.data());
  FOVEA_RETURN_IF_ERROR(queue_.sample(args));
  FOVEA_RETURN_IF_ERROR(queue_.copy_beside(masked_results(open.number), masked_results_.data(),
                                           count * static_cast<size_t>(kResultBytes)));
  return queue_.mark_beside(mark(open.number, returned));
}

void DeviceExecutor::draw_all_masked() {
  for (const auto& open : open_)
    if (open->status && !failure_) open->status = draw_masked(*open);
}

profile::StepInfo DeviceExecutor::describe_step(const Step& step, const OpenStep& open) const {
  profile::StepInfo info;
  info.number = open.number;
  info.decode_rows = open.decode_rows;
  info.prefill_rows = open.prefill_rows;
  info.rows = open.bucket > 0 ? open.bucket : open.decode_rows + open.prefill_rows;
  info.replay = open.bucket > 0 && graphs_.contains({open.bucket, step.batch.input().lora != nullptr}) &&
                !profile::watched(profile::kEager);
  for (const int32_t keys : step.batch.meta().kv_lens)
    info.kv_tokens += keys;
  return info;
}

/// Fills from_ and sample_rows_, and registers the tokens that the step samples.
Status DeviceExecutor::collect_rows(const Step& step, OpenStep& open) {
  const ForwardInput input = step.batch.input();
  from_.assign(input.token_ids.size(), -1);
  placed_rows_.assign(history_ ? from_.size() : 0, {});
  sample_rows_.clear();
  followed_rows_.clear();
  for (const uint64_t id : open.ids)
    edits_.keep(id, open.number);
  size_t row = 0, sequence = 0;  // of the batch
  for (size_t i = 0; i < open.sequences.size(); ++i) {
    const ScheduledChunk& chunk = open.sequences[i].chunk;
    if (history_) place_rows(open, i, row, sequence);
    sequence += static_cast<size_t>(chunk.batch_seqs());
    for (const size_t end = row + static_cast<size_t>(chunk.count); row < end; ++row) {
      if (input.token_ids[row] != kFutureToken || (history_ && placed_rows_[row].slot >= 0)) continue;
      // There is none if the step that samples it has failed: then nobody asks for this row.
      const auto newest = newest_.find(open.ids[i]);
      from_[row] = newest == newest_.end() ? token_slot(open.number, i) : newest->second;
      ++counts_.future_tokens;
    }
    for (int r = 0; r < chunk.logit_rows(); ++r) {
      if (history_) {
        const bool first = open.followed[i] && chunk.logits_first + r + 1 == chunk.known_end();
        followed_rows_.push_back(first ? cuda::FollowedRow{*history_->find(open.ids[i]), chunk.drafts}
                                       : cuda::FollowedRow{});
      }
      cuda::SampleRow& added =
          sample_rows_.emplace_back(open.rows.sample_row(open.rows.first_row(i) + r, open.on_host[i]));
      added.logits_row = static_cast<int32_t>(sample_rows_.size()) - 1;
      if (added.token != cuda::kDrawToken) continue;
      if (chunk.drafts == 0) added.slot = token_slot(open.number, i);  // else no open step needs its token
      FOVEA_RETURN_IF_ERROR(find_edits(open, i, added));
      if (open.sequences[i].sampling->constraint == nullptr) continue;
      open.masked_of.resize(sample_rows_.size(), -1);
      open.masked_of.back() = static_cast<int>(open.masked.size());
      open.masked.push_back({i, added});
      counts_.deferred += !is_known(open, open.masked.back());
      added = {};  // not in the step's launch
    }
  }
  if (!open.masked.empty()) open.masked_of.resize(sample_rows_.size(), -1);
  for (size_t i = 0; i < open.sequences.size(); ++i)
    if (open.sequences[i].sampling && !open.on_host[i] && open.sequences[i].chunk.drafts == 0)
      newest_[open.ids[i]] = token_slot(open.number, i);
  return {};
}

/// The sequences of the step whose tokens the device follows, for drafts.
Status DeviceExecutor::open_history(OpenStep& open) {
  if (!history_) return {};
  for (const uint64_t id : open.ids)
    history_->keep(id, open.number);
  open.followed.resize(open.ids.size());
  for (size_t i = 0; i < open.ids.size(); ++i) {
    const SequenceStep& sequence = open.sequences[i];
    if (!sequence.sampling || open.on_host[i] || sequence.sampling->constraint != nullptr) continue;
    auto slot = history_->find(open.ids[i]);
    // Its tokens are known where no other open step samples one.
    if (!slot && sequence.chunk.sequence->tokens_in_flight == 1) {
      FOVEA_TRY(opened, history_->open(*sequence.chunk.sequence, open.number, open_.front()->number,
                                       queue_.stream()));
      slot = opened;
    }
    open.followed[i] = slot.has_value();
  }
  return {};
}

/// The newest token of a decode, and its drafts, are where the device's history of the sequence ends.
void DeviceExecutor::place_rows(const OpenStep& open, size_t i, size_t first_row, size_t sequence) {
  const ScheduledChunk& chunk = open.sequences[i].chunk;
  if (!open.followed[i] || !chunk.decode) return;
  const int32_t slot = *history_->find(open.ids[i]);
  for (int at = chunk.known_end() - 1 - chunk.first; at < chunk.count; ++at) {
    cuda::PlacedRow& row = placed_rows_[first_row + static_cast<size_t>(at)];
    row.slot = slot;
    row.ahead = at - (chunk.known_end() - 1 - chunk.first);
    row.sequence = static_cast<int32_t>(sequence) + (chunk.single_rows ? at : 0);
    row.logit_row = open.rows.first_row(i) + at - (chunk.logits_first - chunk.first);
    counts_.placed += chunk.ahead > 0;
  }
}

Status DeviceExecutor::find_edits(OpenStep& open, size_t i, cuda::SampleRow& row) {
  const SequenceStep& sequence = open.sequences[i];
  const LogitsProcessor* processor = sequence.sampling->processor;
  if (edits_.need(processor) == EditSlots::Need::none) return {};
  const auto find = [&](uint64_t oldest_open) {
    return edits_.block(*sequence.chunk.sequence, *processor, open.number, oldest_open, queue_.stream());
  };
  FOVEA_TRY(block, find(open_.front()->number));
  if (block == 0) {  // sequences that have ended still use the others: wait until they don't
    FOVEA_RETURN_IF_ERROR(queue_.device().synchronize(queue_.stream()));
    FOVEA_TRY(later, find(open.number));
    FOVEA_CHECK(later != 0);
    block = later;
  }
  row.edits = block;
  return {};
}

/// `bucket`: the step is padded to this number of rows; padding rows sample nothing.
Status DeviceExecutor::upload(const BatchBuilder& batch, int bucket) {
  const auto rows = static_cast<size_t>(bucket);
  if (from_.size() < rows) from_.resize(rows, -1);
  if (sample_rows_.size() < rows) sample_rows_.resize(rows);
  placed_rows_.resize(history_ ? from_.size() : 0);
  followed_rows_.resize(history_ ? sample_rows_.size() : 0);
  std::vector<RowArray> arrays = {
      {from_.data(), kRowBytes, from_.size(), false, &from_there_},
      {sample_rows_.data(), kLogitRowBytes, sample_rows_.size(), true, &sample_rows_there_}};
  if (history_) {
    arrays.push_back({placed_rows_.data(), kNgramRowBytes, placed_rows_.size(), false, &placed_rows_there_});
    arrays.push_back(
        {followed_rows_.data(), kNgramLogitRowBytes, followed_rows_.size(), true, &followed_rows_there_});
  }
  if (options_.lora != nullptr) std::ranges::copy(options_.lora->arrays(), std::back_inserter(arrays));
  FOVEA_RETURN_IF_ERROR(runner_.upload(batch, queue_.stream(), {arrays, bucket}));
  runner_.set_lora(options_.lora != nullptr ? options_.lora->step() : nullptr);
  return {};
}

Status DeviceExecutor::compute(const OpenStep* marked) {
  OpQueue ops(ops_, queue_.stream());
  const Tensor tokens =
      tokens_.tensor(ElementType::i32, {static_cast<int64_t>(tokens_.size() / sizeof(int32_t))});
  ops.take_tokens(tokens, as_i32(from_there_), runner_.tensors().token_ids);
  FOVEA_RETURN_IF_ERROR(ops.status());
  if (history_) {
    const profile::Op op(queue_.stream(), "place_drafts");
    FOVEA_RETURN_IF_ERROR(queue_.place(place_args()));
  }
  FOVEA_RETURN_IF_ERROR(runner_.launch(queue_.stream()));
  if (marked != nullptr) FOVEA_RETURN_IF_ERROR(queue_.mark(mark(marked->number, computed)));
  const Tensor logits = runner_.logits();
  if (logits.size(0) == 0) return {};
  cuda::SampleArgs args = sample_args();
  args.rows = static_cast<const cuda::SampleRow*>(sample_rows_there_.data);
  args.num_rows = static_cast<int32_t>(logits.size(0));
  args.results = reinterpret_cast<cuda::SampleResult*>(results_.data());
  {
    const profile::Op op(queue_.stream(), "sample", -1, [&] { return rows_work({&logits}); });
    FOVEA_RETURN_IF_ERROR(queue_.sample(args));
  }
  if (!history_) return {};
  const profile::Op op(queue_.stream(), "follow_drafts");
  return queue_.follow(follow_args(args.num_rows));
}

cuda::PlaceArgs DeviceExecutor::place_args() const {
  const StepArrays& arrays = runner_.arrays();
  const StepTensors& step = arrays.tensors();
  cuda::PlaceArgs args;
  args.slots = history_->slots();
  args.rows = reinterpret_cast<const cuda::PlacedRow*>(placed_rows_there_.data);
  args.num_rows = static_cast<int32_t>(step.token_ids.size(0));
  args.page_size = options_.ngram.page_size;
  args.token_ids = step.token_ids.as<int32_t>();
  args.positions = step.positions.as<int32_t>();
  args.kv_slots = step.slots.as<int64_t>();
  args.kv_lens = arrays.kv_lens().as<int32_t>();
  args.kv_indptr = arrays.meta().kv_indptr.data();
  args.kv_indices = arrays.meta().kv_indices.data();
  args.q_offsets = arrays.meta().q_offsets.data();
  args.sample_rows = static_cast<cuda::SampleRow*>(sample_rows_there_.data);
  return args;
}

cuda::FollowArgs DeviceExecutor::follow_args(int32_t logit_rows) const {
  const Options::Ngram& ngram = options_.ngram;
  cuda::FollowArgs args;
  args.slots = history_->slots();
  args.rows = reinterpret_cast<const cuda::FollowedRow*>(followed_rows_there_.data);
  args.num_rows = logit_rows;
  args.min = ngram.min, args.max = ngram.max, args.most = ngram.most;
  args.sample_rows = static_cast<const cuda::SampleRow*>(sample_rows_there_.data);
  args.results = reinterpret_cast<cuda::SampleResult*>(results_.data());
  args.rolls = !ngram.rates.empty();
  for (size_t i = 0; i < ngram.rates.size(); ++i)
    args.dice[i] = rate_after(ngram.rates, i);
  args.vocab = options_.sampled_vocab;
  return args;
}

/// Rows of steps that were submitted before it was known how many drafts this one accepts.
void DeviceExecutor::move_later_steps(const OpenStep& open, const StepResult& result) {
  for (size_t i = 0; i < open.ids.size(); ++i) {
    const SequenceResult& of = result.sequences[i];
    const int accepted =
        std::min(open.sequences[i].chunk.drafts, static_cast<int>(of.tokens.size()) - (of.status ? 1 : 0));
    if (accepted <= 0) continue;
    for (size_t s = 1; s < open_.size(); ++s) {
      OpenStep& later = *open_[s];
      const auto found = std::ranges::find(later.ids, open.ids[i]);
      if (found == later.ids.end()) continue;
      const auto at = static_cast<size_t>(found - later.ids.begin());
      later.sequences[at].chunk.first += accepted;
      later.sequences[at].chunk.logits_first += accepted;
      later.rows.move(at, accepted);
    }
  }
}

/// For rows of the newest step's logits; rows and results are left out.
cuda::SampleArgs DeviceExecutor::sample_args() const {
  const Tensor logits = runner_.logits();
  cuda::SampleArgs args;
  args.logits = logits.as<float>();
  args.row_stride = logits.stride(0);
  args.width = runner_.vocab_size();
  args.vocab = options_.sampled_vocab;
  args.tokens = reinterpret_cast<int32_t*>(tokens_.data());
  args.failed_token = 0;  // a later step may embed it
  args.scratch = scratch_.data();
  return args;
}

/// The first step of a bucket runs at once, which loads its kernels; then it is captured for the others.
Status DeviceExecutor::compute_in_graph(OpenStep& open) {
  const bool eager = profile::watched(profile::kEager);
  const GraphKey key{open.bucket, open.lora};
  if (const auto graph = graphs_.find(key); graph != graphs_.end() && !eager) {
    ++counts_.replays;
    runner_.count_replay();
    const profile::Op op(queue_.stream(), profile::kReplay);
    FOVEA_RETURN_IF_ERROR(graph->second->replay());
    return queue_.mark(mark(open.number, computed));
  }
  FOVEA_RETURN_IF_ERROR(compute(&open));
  if (eager) return {};
  if (const Status captured = capture(key); !captured) {
    FOVEA_RETURN_IF_ERROR(queue_.health());
    without_graphs(captured.error());
  }
  return {};
}

Status DeviceExecutor::capture(const GraphKey& key) {
  FOVEA_TRY(graph, queue_.capture([this] { return compute(nullptr); }));
  graphs_[key] = std::move(graph);
  return {};
}

Status DeviceExecutor::start() {
  // Rows that nobody asks for may read tokens that no step has sampled: they must be ids all the same.
  const std::vector<std::byte> zeros(tokens_.size());
  FOVEA_RETURN_IF_ERROR(
      queue_.device().copy_from_host(tokens_.data(), zeros.data(), zeros.size(), queue_.stream()));
  FOVEA_RETURN_IF_ERROR(queue_.device().synchronize(queue_.stream()));
  if (profile::watched(profile::kEager)) return {};
  const Status captured = capture_first();
  if (captured) return {};
  FOVEA_RETURN_IF_ERROR(queue_.health());
  without_graphs(captured.error());
  return {};
}

Status DeviceExecutor::capture_first() {
  BatchBuilder empty;
  empty.build({}, 1);
  for (size_t i = 0; i < std::min(kFirstBuckets, options_.buckets.size()); ++i) {
    from_.clear();
    sample_rows_.clear();
    placed_rows_.clear();
    followed_rows_.clear();
    FOVEA_RETURN_IF_ERROR(upload(empty, options_.buckets[i]));
    if (profile::watched(profile::kOps)) {
      profile::StepInfo run;
      run.rows = options_.buckets[i];
      run.number = profile::kFirstRun + static_cast<uint64_t>(run.rows);
      profile::begin_step(run);
    }
    FOVEA_RETURN_IF_ERROR(compute(nullptr));
    FOVEA_RETURN_IF_ERROR(queue_.device().synchronize(queue_.stream()));
    FOVEA_RETURN_IF_ERROR(capture({options_.buckets[i], false}));
  }
  return {};
}

void DeviceExecutor::without_graphs(const Error& error) {
  capture_failed_ = true;  // the same kernels run without graphs
  FOVEA_LOG(warning) << "decode steps run without CUDA graphs: " << error.message;
}

std::span<float> DeviceExecutor::host_logits(uint64_t number, int row) const {
  const auto vocab = static_cast<size_t>(runner_.vocab_size());
  auto* const rows = reinterpret_cast<float*>(host_logits_[ring(number)].data());
  return {rows + static_cast<size_t>(row) * vocab, vocab};
}

cuda::SampleResult* DeviceExecutor::masked_results(uint64_t number) const {
  return reinterpret_cast<cuda::SampleResult*>(host_masked_results_.data()) +
         ring(number) * static_cast<size_t>(options_.max_seqs);
}

cuda::SampleResult* DeviceExecutor::host_results(uint64_t number) const {
  return reinterpret_cast<cuda::SampleResult*>(host_results_.data()) +
         ring(number) * static_cast<size_t>(options_.max_logit_rows);
}

/// Copies the rows whose logits the host needs, before the next step overwrites them.
Status DeviceExecutor::copy_logits(OpenStep& open) {
  const profile::Op op(queue_.stream(), "copy_logits");
  const size_t row_bytes = static_cast<size_t>(runner_.vocab_size()) * sizeof(float);
  const auto* const there = static_cast<const std::byte*>(runner_.logits().data);
  for (size_t i = 0; i < open.sequences.size(); ++i) {
    const int first = open.rows.first_row(i);
    for (int row = first; row < first + open.sequences[i].chunk.logit_rows(); ++row) {
      if (!open.rows.needs_logits(row, open.on_host[i])) continue;
      HostBuffer& memory = host_logits_[ring(open.number)];
      if (!memory)
        memory = HostBuffer(queue_.device(), static_cast<size_t>(options_.max_logit_rows) * row_bytes);
      open.copies_logits = true;
      FOVEA_RETURN_IF_ERROR(queue_.device().copy_to_host(host_logits(open.number, row).data(),
                                                         there + static_cast<size_t>(row) * row_bytes,
                                                         row_bytes, queue_.stream()));
    }
  }
  return {};
}

StepResult DeviceExecutor::wait(Ticket ticket) {
  FOVEA_CHECK(!open_.empty() && open_.front()->number == ticket.number);
  OpenStep& open = *open_.front();
  StepResult result;
  result.plan_seconds = open.plan_seconds;
  if (failure_) open.status = *failure_;
  if (open.status) open.status = draw_masked(open);
  if (open.status) open.status = await(open);
  profile::step_done();
  result.status = open.status;
  if (open.status) {
    const profile::Range range("sample");
    evaluate(open, result);
    if (history_) move_later_steps(open, result);
  }
  for (size_t i = 0; i < open.ids.size(); ++i)
    if (const auto newest = newest_.find(open.ids[i]);
        newest != newest_.end() && newest->second == token_slot(open.number, i))
      newest_.erase(newest);
  open_.pop_front();
  return result;
}

/// Waits until the results are there. A device that stands still, or fails, is not used again.
Status DeviceExecutor::await(const OpenStep& open) {
  const auto since = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - since).count(); };
  const double patience = std::max(options_.patience.count(), kSlowSteps * slowest_);
  while (true) {
    const auto reached = queue_.reached(mark(open.number, returned));
    if (!reached) {
      fail({ErrorCode::internal, describe(open, false) + " failed: " + reached.error().message});
      return *failure_;
    }
    if (*reached) break;
    if (seconds() > patience) {
      fail({ErrorCode::internal, describe(open, true) + " has not ended after " +
                                     std::to_string(static_cast<int>(seconds())) +
                                     " seconds: the device stands still; restart the program"});
      return *failure_;
    }
    std::this_thread::yield();
  }
  slowest_ = std::max(slowest_, seconds());
  return {};
}

/// "step 17 (3 decode rows, 512 prompt rows)", with `where` also the first part of it that is not done.
std::string DeviceExecutor::describe(const OpenStep& open, bool where) const {
  static constexpr const char* kWhere[] = {"the copy of its arrays", "its forward pass", "sampling",
                                           "the copy of its results"};
  std::string text = "step " + std::to_string(open.number) + " (" + std::to_string(open.decode_rows) +
                     " decode rows, " + std::to_string(open.prefill_rows) + " prompt rows";
  if (open.bucket > 0) text += ", the graph of " + std::to_string(open.bucket) + " rows";
  if (where) {
    int part = 0;
    for (; part < returned; ++part)
      if (const auto done = queue_.reached(mark(open.number, static_cast<Part>(part))); !done || !*done)
        break;
    text += std::string(", in ") + kWhere[part];
  }
  return text + ")";
}

void DeviceExecutor::fail(Error error) {
  FOVEA_LOG(error) << error.message;
  failure_ = std::move(error);
}

void DeviceExecutor::evaluate(OpenStep& open, StepResult& result) {
  const cuda::SampleResult* const results = host_results(open.number);
  const auto result_of = [&](int row) -> const cuda::SampleResult& {
    const int masked = open.masked_of.empty() ? -1 : open.masked_of[static_cast<size_t>(row)];
    return masked < 0 ? results[row] : masked_results(open.number)[masked];
  };
  std::vector<size_t> sequence_of(static_cast<size_t>(open.rows.size()));
  for (size_t i = 0; i < open.sequences.size(); ++i)
    std::fill_n(sequence_of.begin() + open.rows.first_row(i), open.sequences[i].chunk.logit_rows(), i);
  if (history_)
    for (int row = 0; row < open.rows.size(); ++row) {
      const size_t i = sequence_of[static_cast<size_t>(row)];
      if (open.sequences[i].chunk.drafts > 0)
        open.rows.set_draft(row, open.followed[i] ? results[row].draft : -1);
    }
  const auto logits_of = [&](int row) {
    const bool on_host = open.on_host[sequence_of[static_cast<size_t>(row)]];
    return open.rows.needs_logits(row, on_host) ? host_logits(open.number, row) : std::span<float>();
  };
  const auto evaluate_group = [&](int64_t at, int worker) {
    const int group = static_cast<int>(at), groups = open.rows.groups();
    const int first = open.rows.first_of_group(group);
    const int end = group + 1 < groups ? open.rows.first_of_group(group + 1) : open.rows.size();
    if (open.on_host[sequence_of[static_cast<size_t>(first)]])
      open.rows.evaluate(group, logits_of, samplers_[static_cast<size_t>(worker)]);
    else
      for (int row = first; row < end; ++row)
        open.rows.take(row, result_of(row), logits_of(row));
  };
  if (open.copies_logits)
    pool_.parallel_tasks(open.rows.groups(), evaluate_group,
                         {static_cast<double>(open.rows.size()) * runner_.vocab_size()});
  else
    for (int group = 0; group < open.rows.groups(); ++group)
      evaluate_group(group, 0);
  for (size_t i = 0; i < open.sequences.size(); ++i) {
    counts_.host_sampled += open.on_host[i];
    result.sequences.push_back(open.rows.result(i, [&](int row) { return host_logits(open.number, row); }));
  }
}

}  // namespace fovea
