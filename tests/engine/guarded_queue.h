#pragma once
// The queue of a GuardedDevice: operations run at random times, or as late as possible.
#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "engine/device_queue.h"
#include "engine/logprobs.h"
#include "kernels/cuda/sample/edit_block.h"
#include "ops/ops.h"
#include "ops/token_sampler.h"
#include "speculative/ngram_drafter.h"
#include "tests/reference_device/guarded_device.h"

namespace fovea::test {

class GuardedQueue final : public DeviceQueue {
 public:
  /// `latest`: no operation runs before someone waits for it.
  GuardedQueue(GuardedDevice& device, Stream& stream, bool latest, uint32_t seed)
      : device_(device), stream_(stream), latest_(latest), rng_(seed) {}

  uint64_t captured = 0;  ///< graphs
  bool refuses_graphs = false;
  bool stands_still = false;            ///< no mark is reached any more
  uint64_t unusable_seed = UINT64_MAX;  ///< rows with this seed have NaN logits
  Status breaks;                        ///< an error: returned where marks are reached

  Device& device() override { return device_; }
  Stream& stream() override { return stream_; }
  int64_t sample_scratch_bytes(int, int) override { return 64; }

  Status copy_beside(void* to, const void* from, size_t bytes) override {
    return device_.copy_to_host(to, from, bytes, stream_);
  }
  Status wait_for_copies() override { return {}; }
  Status mark(int mark) override {
    marks_[static_cast<size_t>(mark)] = device_.queued();
    return {};
  }
  Status mark_beside(int at) override { return mark(at); }

  Result<bool> reached(int mark) override {
    if (!breaks) return breaks.error();
    if (stands_still) return false;
    const uint64_t until = marks_[static_cast<size_t>(mark)];
    const uint64_t some = device_.ended() + rng_() % (device_.queued() - device_.ended() + 1);
    device_.run(latest_ ? std::max(device_.ended(), until) : some);
    return device_.ended() >= until;
  }
  Status health() override { return breaks; }

  Result<std::unique_ptr<DeviceGraph>> capture(const std::function<Status()>& work) override {
    if (refuses_graphs) return unsupported("no graphs here");
    const uint64_t before = device_.queued();
    FOVEA_RETURN_IF_ERROR(work());
    ++captured;
    return std::unique_ptr<DeviceGraph>(std::make_unique<Graph>(device_, device_.take_back(before)));
  }

  /// As cuda::launch_sample(), for rows without other edits than what a model suppresses and forces.
  Status sample(const cuda::SampleArgs& args) override {
    device_.queue([args, this] {
      cuda::SampleResult unwanted;
      for (int r = 0; r < args.num_rows; ++r)
        sample_row(args, args.rows[r], args.results != nullptr ? args.results[r] : unwanted, unusable_seed);
    });
    return {};
  }

  /// As cuda::launch_place().
  Status place(const cuda::PlaceArgs& args) override {
    device_.queue([args] {
      for (int r = 0; r < args.num_rows; ++r)
        if (args.rows[r].slot >= 0) place_row(args, r);
    });
    return {};
  }
  /// As cuda::launch_follow().
  Status follow(const cuda::FollowArgs& args) override {
    device_.queue([args] {
      for (int r = 0; r < args.num_rows; ++r)
        if (args.rows[r].slot >= 0) follow_row(args, r);
    });
    return {};
  }

 private:
  static void place_row(const cuda::PlaceArgs& args, int r) {
    const cuda::PlacedRow row = args.rows[r];
    const cuda::NgramState& state = args.slots.states[row.slot];
    const int position = state.length - 1 + row.ahead;
    const int32_t token = row.ahead > 0 ? state.drafts[row.ahead - 1]
                                        : args.slots.tokens[row.slot * args.slots.capacity + position];
    args.token_ids[r] = std::max(token, 0);
    args.positions[r] = position;
    const int32_t* const pages = args.kv_indices + args.kv_indptr[row.sequence];
    FOVEA_CHECK(position / args.page_size < args.kv_indptr[row.sequence + 1] - args.kv_indptr[row.sequence]);
    args.kv_slots[r] = int64_t{pages[position / args.page_size]} * args.page_size + position % args.page_size;
    if (args.q_offsets[row.sequence + 1] == r + 1) args.kv_lens[row.sequence] = position + 1;
    if (row.logit_row >= 0) args.sample_rows[row.logit_row].position = static_cast<uint64_t>(position) + 1;
  }

  static void follow_row(const cuda::FollowArgs& args, int r) {
    const cuda::FollowedRow row = args.rows[r];
    cuda::NgramState& state = args.slots.states[row.slot];
    int32_t* const tokens = args.slots.tokens + row.slot * args.slots.capacity;
    const auto newest = static_cast<uint64_t>(state.length) - 1;
    bool accepts = true;
    for (int i = 0; i <= row.drafts; ++i) {
      cuda::SampleResult& result = args.results[r + i];
      result.draft = i < row.drafts ? state.drafts[i] : -1;
      if (!accepts) continue;
      const bool compares = result.draft >= 0 && result.status == cuda::SampleStatus::ok;
      accepts = compares && result.draft == result.token;
      if (args.rolls && compares)
        accepts =
            philox_uniform(~args.sample_rows[r + i].seed, newest + static_cast<uint64_t>(i)) < args.dice[i];
      FOVEA_CHECK(state.length < args.slots.capacity);
      tokens[state.length++] = accepts ? result.draft : std::max(result.token, 0);
    }
    NgramIndex index(args.min, args.max);
    const auto found = index.find({tokens, static_cast<size_t>(state.length)}, args.most);
    for (size_t i = 0; i < std::size(state.drafts); ++i) {
      const bool some = i < static_cast<size_t>(args.most);
      state.drafts[i] = i < found.size() ? found[i]
                        : args.rolls && some
                            ? (tokens[state.length - 1] + static_cast<int32_t>(i) + 1) % args.vocab
                            : -1;
    }
  }

  class Graph final : public DeviceGraph {
   public:
    Graph(GuardedDevice& device, std::vector<std::function<void()>> work)
        : device_(device), work_(std::move(work)) {}
    Status replay() override {
      for (const auto& operation : work_)
        device_.queue(operation);
      return {};
    }

   private:
    GuardedDevice& device_;
    std::vector<std::function<void()>> work_;
  };

  static void sample_row(const cuda::SampleArgs& args, const cuda::SampleRow& row, cuda::SampleResult& out,
                         uint64_t unusable) {
    out = {};
    out.token = Ops::kNoToken;
    out.status = cuda::SampleStatus::skipped;
    if (row.logits_row < 0) return;
    const std::span<const float> logits(args.logits + row.logits_row * args.row_stride,
                                        static_cast<size_t>(args.width));
    std::vector<float> edited;
    std::optional<int32_t> forced;
    auto drawable = logits.first(static_cast<size_t>(args.vocab));
    if (row.edits != 0) {
      edited.assign(drawable.begin(), drawable.end());
      forced = edit(row, edited);
      drawable = edited;
    }
    if (row.mask_row >= 0) {
      if (edited.empty()) edited.assign(drawable.begin(), drawable.end());
      const uint32_t* const mask = args.masks + row.mask_row * args.mask_stride;
      for (size_t i = 0; i < edited.size(); ++i)
        if ((mask[i / 32] >> (i % 32) & 1) == 0) edited[i] = -std::numeric_limits<float>::infinity();
      drawable = edited;
    }
    LogitScan found = scan_logits(drawable);
    if (row.token == cuda::kDrawToken && row.seed == unusable) found.valid = false;
    out.status = found.valid ? cuda::SampleStatus::ok : cuda::SampleStatus::bad_logits;
    if (found.valid && forced) {
      out.token = *forced;
    } else if (found.valid && row.token == cuda::kDrawToken) {
      const DrawRule rule{row.temperature, row.top_k, row.top_p, row.min_p};
      TokenSampler sampler;
      out.token = static_cast<int32_t>(
          sampler.draw(drawable, found.max, rule, philox_uniform(row.seed, row.position)));
    } else if (found.valid && row.token >= 0) {
      out.token = row.token;
    }
    if (row.slot >= 0) args.tokens[row.slot] = found.valid ? out.token : args.failed_token;
    if (!found.valid || row.top < 0) return;
    const TokenLogprobs logprobs = token_logprobs(logits, out.token, row.top);
    out.logprob = logprobs.token.logprob;
    out.rank = logprobs.token.rank;
    for (const TokenLogprob& top : logprobs.top) {
      out.top_ids[out.num_top] = top.token_id;
      out.top_logprobs[out.num_top++] = top.logprob;
    }
  }

  /// Applies the row's edit block; returns the token that it forces.
  static std::optional<int32_t> edit(const cuda::SampleRow& row, std::vector<float>& logits) {
    const auto* const words = reinterpret_cast<const uint32_t*>(static_cast<uintptr_t>(row.edits));
    const auto& block = *reinterpret_cast<const cuda::EditBlock*>(words);
    FOVEA_CHECK(block.ends == 0 && block.bias == 0 && block.bad_words == 0 && block.allowed == 0 &&
                block.penalises == 0);
    const uint64_t answered = row.position - block.prompt_len;
    const auto mask = [&](uint32_t first, uint32_t count) {
      for (uint32_t i = 0; i < count; ++i)
        logits[words[first + i]] = -std::numeric_limits<float>::infinity();
    };
    mask(block.suppressed, block.num_suppressed);
    if (answered == 0) mask(block.suppressed_first, block.num_suppressed_first);
    return block.forced_last >= 0 && answered == block.forced_at ? std::optional(block.forced_last)
                                                                 : std::nullopt;
  }

  GuardedDevice& device_;
  Stream& stream_;
  bool latest_;
  std::mt19937 rng_;
  std::array<uint64_t, kMarks> marks_{};
};

}  // namespace fovea::test
