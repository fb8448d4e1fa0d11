#include "conformance/graph.h"

#include "attention/kv_view.h"
#include "conformance/invariance.h"
#include "fovea/attention_backend.h"

namespace fovea::conformance {
namespace {

/// Adds two sequences, copies of the first and the last, which preserves uniform rows, shared pages and
/// complete masks.
Problem enlarged(const Problem& problem) {
  Problem large = problem;
  large.seqs.push_back(problem.seqs.front());
  large.seqs.push_back(problem.seqs.back());
  return large;
}

/// The first `seqs` sequences of a step, in the same arrays.
BatchMeta first_of(BatchMeta meta, size_t seqs) {
  const auto cut = [](auto& array, size_t size) {
    if (!array.empty()) array = array.first(size);
  };
  meta.tokens = meta.q_offsets[seqs];
  cut(meta.q_offsets, seqs + 1);
  cut(meta.kv_lens, seqs);
  cut(meta.page_table, seqs * static_cast<size_t>(meta.page_table_stride));
  cut(meta.kv_indptr, seqs + 1);
  cut(meta.span_offsets, seqs + 1);
  cut(meta.packed_offsets, seqs + 1);
  return meta;
}

/// The contents of the arrays while a graph is captured: the step with its sequence lengths in reverse order.
struct OtherLengths {
  explicit OtherLengths(const BatchMeta& of) : meta(of) {
    kv_lens.assign(of.kv_lens.rbegin(), of.kv_lens.rend());
    for (size_t b = of.kv_lens.size(); b > 0; --b)
      q_offsets.push_back(q_offsets.back() + of.q_offsets[b] - of.q_offsets[b - 1]);
    meta.kv_lens = kv_lens;
    meta.q_offsets = q_offsets;
  }
  BatchMeta meta;
  std::vector<int32_t> kv_lens, q_offsets = {0};
};

/// Device memory for a step's arrays, with fixed addresses and changing contents.
class StepArrays {
 public:
  /// No later step may have larger arrays than `largest`.
  static Result<StepArrays> create(const BatchMeta& largest, DeviceSession& session) {
    StepArrays arrays;
    Status status;
    with_arrays(largest, [&](auto array) {
      const auto room = session.room(array.size_bytes());
      if (!room && status) status = room.error();
      arrays.rooms_.push_back(room ? *room : nullptr);
      return array;
    });
    FOVEA_RETURN_IF_ERROR(status);
    return arrays;
  }

  /// Writes `step` and returns it with device addresses. It has the same arrays as the largest step, none
  /// longer.
  Result<BatchMeta> write(const BatchMeta& step, DeviceSession& session) const {
    Status status;
    size_t at = 0;
    const BatchMeta there = with_arrays(step, [&](auto array) {
      std::byte* room = rooms_[at++];
      if (status) status = session.write(room, array.data(), array.size_bytes());
      return decltype(array)(reinterpret_cast<decltype(array.data())>(room), array.size());
    });
    FOVEA_RETURN_IF_ERROR(status);
    return there;
  }

 private:
  std::vector<std::byte*> rooms_;
};

/// The output of one replay; may be read after the session has finished.
struct Replay {
  std::string what;
  int64_t rows;  ///< of its step
  Target::Bytes bytes;
  const std::byte* guard;
};

Error failed(const std::string& where, const Error& error) {
  return {error.code, where + ": " + error.message};
}

class GraphCase {
 public:
  GraphCase(AttentionBackend& backend, const Case& c, Machine& machine)
      : backend_(backend),
        layout_(c.layout),
        spec_(c.problem.spec),
        phase_(c.problem.phase),
        batch_(enlarged(c.problem), c.layout),
        seqs_(c.problem.seqs.size()),
        machine_(machine) {
    set_layout(spec_, c.layout.kv);
    want_lse_ = backend.info().capability.features.has(Feature::lse);
  }

  Result<std::vector<Output>> planned_before(std::vector<Replay>& replays) {
    FOVEA_RETURN_IF_ERROR(begin());
    const Result<size_t> bytes = backend_.init_graph_state(spec_, batch_.limits());
    if (!bytes) return failed("init_graph_state", bytes.error());
    FOVEA_TRY(scratch, Scratch::create(*bytes, *session_));
    FOVEA_TRY(other, arrays_.write(other_.meta, *session_));
    auto plan =
        backend_.plan_for_capture(spec_, batch_.limits(), other, scratch.workspace(), session_->stream());
    if (!plan) return failed("plan_for_capture", plan.error());
    FOVEA_RETURN_IF_ERROR(session_->record([&](Stream& stream) { return forward(**plan, stream); }));
    for (const size_t seqs : {seqs_ + 2, seqs_, seqs_ + 2}) {
      FOVEA_TRY(step, arrays_.write(first_of(batch_.meta(), seqs), *session_));
      FOVEA_RETURN_IF_ERROR(target_.poison(*session_));
      if (const Status status = backend_.plan_for_replay(**plan, step, session_->stream()); !status)
        return failed("plan_for_replay", status.error());
      FOVEA_RETURN_IF_ERROR(replay(scratch,
                                   "replayed with " + std::to_string(seqs) +
                                       " sequences after a capture with " + std::to_string(seqs_ + 2),
                                   step.tokens, replays));
    }
    if (const Status status = backend_.check_plan(**plan, -1, session_->stream()); !status)
      return failed("check_plan after a replay", status.error());
    return finish(replays);
  }

  Result<std::vector<Output>> planned_inside(std::vector<Replay>& replays) {
    FOVEA_RETURN_IF_ERROR(begin());
    const Result<size_t> bytes = backend_.workspace_bytes(spec_, batch_.limits());
    if (!bytes) return failed("workspace_bytes", bytes.error());
    FOVEA_TRY(scratch, Scratch::create(*bytes, *session_));
    FOVEA_TRY(step, arrays_.write(other_.meta, *session_));
    std::unique_ptr<Plan> plan;
    const auto work = [&](Stream& stream) -> Status {
      FOVEA_TRY(made, backend_.plan(spec_, batch_.limits(), step, scratch.workspace(), stream));
      plan = std::move(made);
      return forward(*plan, stream);
    };
    FOVEA_RETURN_IF_ERROR(session_->record(work));
    FOVEA_RETURN_IF_ERROR(arrays_.write(batch_.meta(), *session_));
    FOVEA_RETURN_IF_ERROR(replay(scratch, "planned in the graph", step.tokens, replays));
    return finish(replays);
  }

 private:
  Status begin() {
    FOVEA_TRY(session, machine_.open_session());
    session_ = std::move(session);
    FOVEA_TRY(arrays, StepArrays::create(batch_.meta(), *session_));
    arrays_ = std::move(arrays);
    FOVEA_TRY(args, batch_.upload_args(*session_));
    args_ = args;
    FOVEA_TRY(target,
              Target::create(spec_, batch_.meta().num_tokens(), layout_.row_padding, want_lse_, *session_));
    target_ = target;
    target_.put_into(args_);
    return {};
  }

  Status forward(const Plan& plan, Stream& stream) {
    return phase_ == Phase::decode ? backend_.forward_decode(plan, args_, stream)
                                   : backend_.forward_extend(plan, args_, stream);
  }

  Status replay(const Scratch& scratch, std::string what, int64_t rows, std::vector<Replay>& replays) {
    if (const Status status = session_->replay(); !status) return failed(what, status.error());
    FOVEA_TRY(bytes, target_.fetch(*session_));
    FOVEA_TRY(guard, scratch.fetch(*session_));
    replays.push_back({std::move(what), rows, bytes, guard});
    return {};
  }

  Result<std::vector<Output>> finish(const std::vector<Replay>& replays) {
    FOVEA_RETURN_IF_ERROR(session_->finish());
    std::vector<Output> outputs;
    for (const Replay& replay : replays) {
      outputs.push_back(target_.read(replay.bytes, replay.rows));
      if (!Scratch::intact(replay.guard)) outputs.back().error = "wrote past the workspace";
    }
    return outputs;
  }

  AttentionBackend& backend_;
  const Layout& layout_;
  AttentionSpec spec_;
  Phase phase_;
  Batch batch_;
  OtherLengths other_{batch_.meta()};
  size_t seqs_;
  Machine& machine_;
  bool want_lse_ = true;
  std::unique_ptr<DeviceSession> session_;
  StepArrays arrays_;
  AttentionArgs args_;
  Target target_;
};

}  // namespace

std::string find_graph_change(AttentionBackend& backend, const Case& c, const Output& first,
                              Machine& machine) {
  int64_t rows = 0;
  for (const Sequence& s : c.problem.seqs)
    rows += s.n_q;
  for (const auto run : {&GraphCase::planned_before, &GraphCase::planned_inside}) {
    GraphCase graph(backend, c, machine);
    std::vector<Replay> replays;
    const auto outputs = (graph.*run)(replays);
    if (!outputs) return outputs.error().message;
    for (size_t i = 0; i < outputs->size(); ++i) {
      const Output got = rows_of((*outputs)[i], c.problem.spec, 0, rows);
      if (got == first) continue;
      return (got.error.empty() ? "other bits " : got.error + " ") + replays[i].what;
    }
  }
  return {};
}

}  // namespace fovea::conformance
