#include "model/decoder_forward.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "attention/phased.h"
#include "base/check.h"
#include "ops/heads.h"
#include "tensor/device.h"

namespace fovea {
namespace {

/// One step. x is the residual stream.
class Forward {
 public:
  Forward(const ModelConfig& config, const PlacedDecoder& weights, const DecoderLimits& limits,
          const StepTensors& step, Arena& arena, OpQueue& queue)
      : c_(config),
        w_(weights),
        max_rows_(limits.max_tokens),
        max_logit_rows_(std::min(limits.max_tokens, limits.max_logit_rows)),
        hidden_(limits.hidden),
        lora_(limits.lora),
        step_(step),
        arena_(arena),
        q_(queue),
        rows_(step.token_ids.size(0)) {
    FOVEA_CHECK(rows_ > 0 && rows_ <= max_rows_ && step.logit_rows.size(0) <= limits.max_logit_rows);
    FOVEA_CHECK(config.ropes.size() <= kMaxRopes);
  }

  void run(const Tensor& logits) {
    const Arena::Scope scope(arena_);
    x_ = f32_rows(c_.hidden_size);
    normed_ = activations(c_.hidden_size);
    branch_ = activations(c_.hidden_size);
    if (std::ranges::any_of(w_.layers, [](const PlacedLayer& layer) { return layer.shortcut.has_value(); })) {
      shortcut_ = activations(c_.hidden_size);
      kept_shortcut_ = take_rows(q_.activations(), max_logit_rows_, c_.hidden_size);
    }
    if (lora_.max_rank > 0) lora_scratch_ = arena_.take(ElementType::f32, {lora_floats()});
    if (q_.activations() != ElementType::f32)
      kept_x_ = arena_.take(ElementType::f32, {max_logit_rows_, c_.hidden_size});
    if (c_.sparse) chosen_ = arena_.take(ElementType::i32, {max_rows_, c_.sparse_topk}).first_rows(rows_);
    for (size_t i = 0; i < w_.ropes.size(); ++i)
      ropes_[i] = rope_table(w_.ropes[i]);

    Tensor input;
    if (!w_.draft)
      q_.embed(w_.embedding, step_.token_ids, c_.embedding_scale, x_);
    else
      input = draft_input(*w_.draft);
    if (input.empty()) {
      if (const NormWeight& first = w_.layers.front().attention_input_norm) {
        q_.norm(first, x_, normed_);
        input = normed_;
      } else {
        input = stream_input();
      }
    }
    // The states after the last layer are those of all rows, except in a draft head.
    const auto layers = static_cast<int>(w_.layers.size());
    const bool all_rows = !w_.draft && !hidden_.empty() && hidden_.back() >= layers;
    for (size_t i = 0; i < w_.layers.size(); ++i) {
      const PlacedLayer& layer = w_.layers[i];
      const bool last = i + 1 == w_.layers.size() && !all_rows;
      q_.at_layer(static_cast<int>(i));
      keep_hidden(static_cast<int>(i), x_);
      if (layer.latent)
        c_.mla.expanded_keys > 0 ? expanded_attention(*layer.latent, static_cast<int>(i), input, last)
                                 : latent_attention(*layer.latent, static_cast<int>(i), input, last);
      else
        attention(layer.attention, static_cast<int>(i), input, last);
      input = add_branch(layer.attention_output_norm, layer.mlp_input_norm);
      const bool joins = i > 0 && w_.layers[i - 1].shortcut;
      if (layer.shortcut) moe_forward(*layer.shortcut, input, shortcut_, max_rows_, arena_, q_);
      mlp(layer, static_cast<int>(i), input);
      if (joins) {
        q_.add(x_, branch_, w_.scales.residual);
        std::swap(branch_, shortcut_);
      }
      input = add_branch(layer.mlp_output_norm,
                         i + 1 == w_.layers.size() ? w_.final_norm : w_.layers[i + 1].attention_input_norm);
    }
    q_.at_layer(-1);
    keep_hidden(layers, x_);
    keep_hidden(layers + 1, input);
    if (all_rows) {
      const Tensor kept = take_rows(q_.activations(), max_logit_rows_, c_.hidden_size);
      if (const int64_t rows = step_.logit_rows.size(0); rows < rows_) {
        q_.gather_rows(input, step_.logit_rows, kept.first_rows(rows));
        input = kept.first_rows(rows);
      }
    }
    q_.logits(w_.head, input, {w_.scales.logits, w_.scales.logit_softcap}, logits);
  }

 private:
  static constexpr size_t kMaxRopes = 4;  // distinct rotations in one model

  /// [rows, width], in arena memory for [max_rows, width]. Rows of 16-bit types begin at multiples of 16
  /// bytes, as matrix kernels read them.
  Tensor rows_of(ElementType type, int64_t width) {
    return take_rows(type, max_rows_, width).first_rows(rows_);
  }
  Tensor take_rows(ElementType type, int64_t rows, int64_t width) {
    constexpr int64_t kGroup = 8;
    if (size_of(type) != 2 || width % kGroup == 0) return arena_.take(type, {rows, width});
    return arena_.take(type, {rows, (width + kGroup - 1) / kGroup * kGroup}).slice(1, 0, width);
  }
  Tensor activations(int64_t width) { return rows_of(q_.activations(), width); }
  Tensor f32_rows(int64_t width) { return rows_of(ElementType::f32, width); }

  /// Copies a state that drafters want: `id` as of Model::keep_hidden().
  void keep_hidden(int id, const Tensor& state) {
    const auto found = std::ranges::find(hidden_, id);
    if (found == hidden_.end() || q_.dry()) return;
    q_.cast(state, step_.hidden[static_cast<size_t>(found - hidden_.begin())]);
  }

  /// Sets the residual stream of a draft head. Returns the input of its attention if that is not the stream
  /// after the layer's norm.
  Tensor draft_input(const PlacedDraftInput& draft) {
    const int64_t h = c_.hidden_size;
    const Tensor both = activations(2 * h);
    const Arena::Scope scope(arena_);
    const Tensor embedding = both.slice(1, 0, h), state = both.slice(1, h, h);
    const Tensor embedded = q_.activations() == ElementType::f32 ? embedding : f32_rows(h);
    q_.embed(w_.embedding, step_.token_ids, c_.embedding_scale, embedded);
    if (draft.embedding_norm)
      q_.norm(draft.embedding_norm, embedded, embedding);
    else if (q_.activations() != ElementType::f32)
      q_.cast(embedded, embedding);
    if (!draft.joins_in_attention) {
      if (draft.state_norm)
        q_.norm(draft.state_norm, step_.states, state);
      else
        q_.cast(step_.states, state);
      q_.linear(draft.fc, both, x_, "fc");
      return {};
    }
    if (step_.states.size(1) != h)
      q_.linear(draft.fc, fc_input(draft), x_, "fc");
    else
      q_.cast(step_.states, x_);
    q_.norm(draft.state_norm, x_, state);
    if (draft.norm_before_residual) q_.norm(draft.state_norm, x_, x_);
    return both;
  }

  /// The states that fc reads, after their norms.
  Tensor fc_input(const PlacedDraftInput& draft) {
    const bool plain = !draft.fc_norm && draft.part_norms.empty();
    if (plain && q_.activations() == ElementType::f32) return step_.states;
    const int64_t width = step_.states.size(1);
    const Tensor normed = activations(width);
    if (plain) {
      q_.cast(step_.states, normed);
      return normed;
    }
    if (draft.fc_norm) {
      q_.norm(draft.fc_norm, step_.states, normed);
      return normed;
    }
    const int64_t part = width / static_cast<int64_t>(draft.part_norms.size());
    for (size_t i = 0; i < draft.part_norms.size(); ++i) {
      const int64_t first = static_cast<int64_t>(i) * part;
      q_.norm(draft.part_norms[i], step_.states.slice(1, first, part), normed.slice(1, first, part));
    }
    return normed;
  }

  /// The residual stream as the input of a block without a norm in front.
  Tensor stream_input() {
    if (q_.activations() == ElementType::f32) return x_;
    q_.cast(x_, normed_);
    return normed_;
  }

  RopeTable rope_table(const PlacedRope& rope) {
    const int64_t pairs = rope.frequencies.size(0);
    const RopeTable table{f32_rows(pairs), f32_rows(pairs), rope.interleaved};
    q_.rope_table(rope.frequencies, rope.factor, step_.positions, table);
    return table;
  }

  /// branch = out(attention(qkv(input))); in the last layer, only for rows whose logits are wanted.
  void attention(const PlacedAttention& a, int layer, const Tensor& input, bool last) {
    const Arena::Scope scope(arena_);
    Tensor heads = activations(a.out.k);
    {
      const Arena::Scope inner(arena_);
      const Tensor qkv = activations(a.qkv.n);
      linear(a.qkv, layer, LoraSite::qkv, input, qkv, "qkv");
      q_.norm_rope_append(attention_input(a, layer, qkv));
      q_.call([&](Stream& stream) {
        return step_.attention->forward(layer, attention_args(a, layer, qkv, heads), stream);
      });
    }
    if (last) heads = keep_logit_rows(heads);
    linear(a.out, layer, LoraSite::o, heads, branch_, "o");
  }

  /// The same with latent attention, absorbed: keys' up-projections on the queries, values' on the result.
  void latent_attention(const PlacedLatent& a, int layer, const Tensor& input, bool last) {
    const Arena::Scope scope(arena_);
    const MlaConfig& m = c_.mla;
    const int64_t count = c_.num_heads;
    Tensor latent = activations(count * m.kv_rank);
    {
      const Arena::Scope inner(arena_);
      const Tensor absorbed = activations(count * m.record());
      absorb(a, layer, input, heads_of(absorbed, m.record()), rows_);
      q_.call([&](Stream& stream) {
        return step_.attention->forward(layer, latent_args(layer, absorbed, latent), stream);
      });
    }
    if (last) latent = keep_logit_rows(latent);
    const Tensor heads = activations(count * m.v_dim);
    q_.head_linear(a.value_up, heads_of(latent, m.kv_rank), heads_of(heads, m.v_dim), "value_up");
    linear(a.out, layer, LoraSite::o, heads, branch_, "o");
  }

  /// The same where prefills are not absorbed: the step's first rows decode, the others attend to keys and
  /// values of every head, which are expanded from the cache block by block.
  void expanded_attention(const PlacedLatent& a, int layer, const Tensor& input, bool last) {
    const Arena::Scope scope(arena_);
    const MlaConfig& m = c_.mla;
    const int64_t count = c_.num_heads;
    PhasedAttention* expanded = q_.dry() ? nullptr : step_.attention->expanded(layer);
    const int64_t decodes = expanded != nullptr ? expanded->expanded()->first_row() : rows_;
    Tensor heads = activations(count * m.v_dim);
    {
      const Arena::Scope inner(arena_);
      const Tensor absorbed = activations(count * m.record());
      const Tensor queries = absorb(a, layer, input, heads_of(absorbed, m.record()), decodes);
      if (decodes > 0) {
        const Arena::Scope absorbing(arena_);
        const Tensor latent = activations(count * m.kv_rank);
        q_.call([&](Stream& stream) {
          return step_.attention->forward(layer, latent_args(layer, absorbed, latent), stream);
        });
        q_.head_linear(a.value_up, heads_of(latent, m.kv_rank).first_rows(decodes),
                       heads_of(heads, m.v_dim).first_rows(decodes), "value_up");
      }
      if (q_.dry() || expanded != nullptr) expand(a, layer, queries, heads, expanded);
    }
    if (last) heads = keep_logit_rows(heads);
    linear(a.out, layer, LoraSite::o, heads, branch_, "o");
  }

  /// The prefill rows of expanded_attention(): `queries` [rows, heads, qk_dim], rotated, to `heads`.
  void expand(const PlacedLatent& a, int layer, const Tensor& queries, const Tensor& heads,
              PhasedAttention* attention) {
    const Arena::Scope scope(arena_);
    const MlaConfig& m = c_.mla;
    const int64_t count = c_.num_heads, keys = m.expanded_keys;
    const Tensor latents = take_rows(q_.activations(), keys, m.kv_rank);
    const Tensor k = heads_of(take_rows(q_.activations(), keys, count * m.qk_dim()), m.qk_dim());
    const Tensor v = heads_of(take_rows(q_.activations(), keys, count * m.v_dim), m.v_dim);
    const Tensor part = f32_rows(count * m.v_dim), lse = f32_rows(count), part_lse = f32_rows(count);
    if (attention == nullptr) return;  // a dry run
    for (const ExpandedPrefill::Block& block : attention->expanded()->blocks()) {
      const auto n = static_cast<int64_t>(block.slots.size());
      const Tensor block_k = k.first_rows(n), block_v = v.first_rows(n), latent = latents.first_rows(n);
      const Tensor slots = host_tensor(std::span<const int64_t>(block.slots));
      q_.read_records(step_.kv->layer(layer), slots, latent, block_k.slice(2, m.nope_dim, m.rope_dim));
      Tensor shared = heads_of(latent, m.kv_rank);  // each head's is the same
      shared.shape[1] = count;
      shared.strides[1] = 0;
      q_.head_linear(a.key_down, shared, block_k.slice(2, 0, m.nope_dim), "key_down");
      q_.head_linear(a.value_up, shared, block_v, "value_up");
      q_.call([&](Stream& stream) {
        AttentionArgs args;
        args.q = queries.data;
        args.q_row_stride = queries.stride(0);
        args.q_head_stride = queries.stride(1);
        args.out = heads.data;
        args.out_row_stride = heads.stride(0);
        args.lse = lse.as<float>();
        args.kv.k = block_k.data;
        args.kv.v = block_v.data;
        args.kv.num_pages = n;
        args.kv.k_page_stride = block_k.stride(0);
        args.kv.k_head_stride = block_k.stride(1);
        args.kv.v_page_stride = block_v.stride(0);
        args.kv.v_head_stride = block_v.stride(1);
        const profile::Op op(stream, "attention", layer, [] { return profile::OpWork(); });
        return attention->attend(block, args, {part.as<float>(), part_lse.as<float>()}, stream);
      });
    }
  }

  AttentionArgs latent_args(int layer, const Tensor& absorbed, const Tensor& latent) const {
    AttentionArgs args;
    args.q = absorbed.data;
    args.q_row_stride = absorbed.stride(0);
    args.out = latent.data;
    args.out_row_stride = latent.stride(0);
    args.kv = step_.kv->layer(layer);
    if (chosen_) {
      args.chosen = chosen_.as<int32_t>();
      args.chosen_row_stride = chosen_.stride(0);
    }
    return args;
  }

  /// Writes the step's records, and the first `count` queries as they meet records: `absorbed` [rows, heads,
  /// record]. Returns the queries [rows, heads, qk_dim] in memory of the caller's scope, those after `count`
  /// rotated.
  Tensor absorb(const PlacedLatent& a, int layer, const Tensor& input, const Tensor& absorbed,
                int64_t count) {
    const MlaConfig& m = c_.mla;
    const Tensor down = activations(a.down.n);
    linear(a.down, layer, LoraSite::qkv, input, down, "qkv");
    const int64_t first = a.down.n - m.record();  // the queries, or their latent
    Tensor queries = down.slice(1, 0, first);
    if (a.q_norm) {
      q_.norm(a.q_norm, queries, queries);
      if (a.indexer) choose_keys(*a.indexer, layer, input, queries);
      const Tensor up = activations(a.q_up.n);
      linear(a.q_up, layer, LoraSite::q_up, queries, up, "q_up");
      queries = up;
    }
    queries = heads_of(queries, m.qk_dim());
    if (count > 0)
      q_.head_linear(a.key_up, queries.slice(2, 0, m.nope_dim).first_rows(count),
                     absorbed.slice(2, 0, m.kv_rank).first_rows(count), "key_up");
    LatentInput in;
    in.q = queries;
    in.absorbed = absorbed;
    in.record = down.slice(1, first, m.record());
    in.norm = a.kv_norm;
    in.rope = ropes_[static_cast<size_t>(c_.layers[static_cast<size_t>(layer)].rope)];
    in.slots = step_.slots;
    if (step_.kv) in.kv = step_.kv->layer(layer);
    q_.latent_append(in);
    for (int64_t h = 0; count < rows_ && h < c_.num_heads; ++h) {
      const auto rotated = [&](const Tensor& t, int64_t part) {
        return head_of(t.slice(0, count, rows_ - count).slice(2, part, m.rope_dim), h);
      };
      q_.cast(rotated(absorbed, m.kv_rank), rotated(queries, m.nope_dim));
    }
    return queries;
  }

  /// Lists the keys that the rows see, for this layer and those after it without an indexer. `latent`: of the
  /// queries.
  void choose_keys(const PlacedIndexer& a, int layer, const Tensor& input, const Tensor& latent) {
    const Arena::Scope scope(arena_);
    const IndexerConfig& config = c_.indexer;
    const Tensor queries = activations(a.queries.n);
    IndexInput in;
    in.key = activations(config.dim);
    in.weights = activations(config.heads);
    q_.linear(a.queries, latent, queries, "index_q");
    q_.linear(a.key, input, in.key, "index_k");
    q_.linear(a.weights, input, in.weights, "index_weights");
    in.q = heads_of(queries, config.dim);
    in.norm = a.key_norm;
    in.rope = ropes_[static_cast<size_t>(c_.layers[static_cast<size_t>(layer)].rope)];
    in.rope.interleaved = config.interleaved;
    in.scale = 1.0f / std::sqrt(static_cast<float>(config.heads) * static_cast<float>(config.dim));
    in.slots = step_.slots;
    in.batch = step_.batch;
    in.max_keys = c_.max_position;
    if (const int64_t bytes = q_.index_scratch(config.heads, config.dim, max_rows_, in.max_keys); bytes > 0)
      in.scratch = arena_.take(ElementType::u8, {bytes});
    if (step_.kv) in.keys = step_.kv->index_keys(layer);
    q_.choose_keys(in, chosen_);
  }

  /// Rows [rows, heads * dim] as [rows, heads, dim].
  Tensor heads_of(const Tensor& rows, int64_t dim) const {
    Tensor out = rows;
    out.rank = 3;
    out.shape = {rows.size(0), rows.size(1) / dim, dim};
    out.strides = {rows.stride(0), dim, 1};
    return out;
  }

  AttentionInput attention_input(const PlacedAttention& a, int layer, const Tensor& qkv) const {
    const int rope = c_.layers[static_cast<size_t>(layer)].rope;
    AttentionInput in;
    in.qkv = qkv;
    in.heads = c_.num_heads;
    in.kv_heads = c_.num_kv_heads;
    in.head_dim = c_.head_dim;
    in.norm_after_rope = c_.qk_norm == QkNorm::l2_after_rope;
    if (rope >= 0 || !in.norm_after_rope) {
      in.q_norm = a.q_norm;
      in.k_norm = a.k_norm;
    }
    if (rope >= 0)
      in.rope = ropes_[static_cast<size_t>(rope)];
    else
      in.temperature_scale = a.temperature.scale;
    in.temperature_floor = a.temperature.floor;
    in.positions = step_.positions;
    in.slots = step_.slots;
    if (step_.kv) in.kv = step_.kv->layer(layer);
    return in;
  }

  AttentionArgs attention_args(const PlacedAttention& a, int layer, const Tensor& qkv,
                               const Tensor& heads) const {
    AttentionArgs args;
    args.q = qkv.data;
    args.q_row_stride = qkv.stride(0);
    args.out = heads.data;
    args.out_row_stride = heads.stride(0);
    args.kv = step_.kv->layer(layer);
    args.sinks = a.sinks.as<float>();
    return args;
  }

  /// Keeps only rows whose logits are wanted, in x and in the attention's output, which is returned.
  Tensor keep_logit_rows(const Tensor& heads) {
    const int64_t kept = step_.logit_rows.size(0);
    kept_ = true;
    if (kept == rows_) return heads;  // ascending, so all of them
    const Tensor kept_heads = take_rows(q_.activations(), max_logit_rows_, heads.size(1)).first_rows(kept);
    q_.gather_rows(heads, step_.logit_rows, kept_heads);
    rows_ = kept;
    normed_ = normed_.first_rows(kept);  // its content is no longer needed
    if (kept_x_.empty()) {
      q_.gather_rows(x_, step_.logit_rows, normed_);
      x_ = x_.first_rows(kept);
      std::swap(x_, normed_);
    } else {
      kept_x_ = kept_x_.first_rows(kept);
      q_.gather_rows(x_, step_.logit_rows, kept_x_);
      x_ = kept_x_;
    }
    branch_ = branch_.first_rows(kept);
    if (!shortcut_.empty()) {
      kept_shortcut_ = kept_shortcut_.first_rows(kept);
      q_.gather_rows(shortcut_, step_.logit_rows, kept_shortcut_);
      shortcut_ = kept_shortcut_;
    }
    return kept_heads;
  }

  /// y = the linear layer of x, with the shares of the step's adapters.
  void linear(const LinearWeight& weight, int layer, LoraSite site, const Tensor& x, const Tensor& y,
              const char* name) {
    if (step_.lora_slots != nullptr && !step_.lora_slots->layout->at(layer, site).empty())
      return q_.linear_lora(weight, lora_input(layer, site, x), y, name);
    q_.linear(weight, x, y, name);
    lora(layer, site, x, y);
  }
  /// On the CPU: y += the shares.
  void lora(int layer, LoraSite site, const Tensor& x, const Tensor& y) {
    if (step_.lora == nullptr) return;
    for (const LoraGroup& group : *step_.lora)
      if (const LoraWeights& weights = group.adapter->at(layer, site); !weights.empty())
        q_.add_lora(weights, kept_ ? group.logit_rows : group.rows, x, y, lora_scratch_);
  }
  Ops::LoraInput lora_input(int layer, LoraSite site, const Tensor& x) const {
    const LoraStep& step = *step_.lora_slots;
    return {step, step.layout->at(layer, site), kept_ ? step.logit_rows : step.rows, x, lora_scratch_};
  }
  bool has_lora(int layer, LoraSite site) const {
    return step_.lora != nullptr && std::ranges::any_of(*step_.lora, [&](const LoraGroup& group) {
             return !group.adapter->at(layer, site).empty();
           });
  }
  int64_t lora_floats() const {
    if (q_.lora_in_slots()) {
      int64_t most = 0;
      for (const auto& sites : lora_.layout->layers)
        for (const LoraPlace& place : sites)
          if (!place.empty()) most = std::max(most, place.modules * q_.lora_parts(place.k));
      return most * lora_.layout->max_rank * max_rows_;
    }
    const int64_t heads = int64_t{c_.num_heads} * (c_.mla ? c_.mla.qk_dim() : c_.head_dim);
    const int64_t kv = c_.mla ? c_.mla.record() : 2 * int64_t{c_.num_kv_heads} * c_.head_dim;
    const int64_t values = int64_t{c_.num_heads} * std::max(c_.mla.v_dim, c_.head_dim);
    const int64_t wide =
        std::max({c_.intermediate_size, c_.moe.intermediate_size, c_.moe.shared_intermediate_size});
    const int64_t k = std::max<int64_t>({c_.hidden_size, heads, values, c_.mla.q_rank, wide});
    const int64_t n = std::max<int64_t>({c_.hidden_size, heads + kv, c_.mla.q_rank + kv, 2 * wide});
    return lora_scratch(int64_t{kLoraModules} * lora_.max_rank, k, n);
  }

  void mlp(const PlacedLayer& layer, int index, const Tensor& input) {
    if (layer.moe) {
      const ExpertLora lora{step_.lora,       index,           kept_, lora_scratch_.as<float>(), lora_.layout,
                            step_.lora_slots, lora_.block_rows};
      return moe_forward(*layer.moe, input, branch_, max_rows_, arena_, q_,
                         step_.lora != nullptr || lora_.layout != nullptr ? &lora : nullptr);
    }
    const Arena::Scope scope(arena_);
    const Tensor wide = q_.needs_wide() ? activations(layer.mlp.gate_up.n) : Tensor();
    const Tensor act = activations(layer.mlp.down.k);
    Tensor sums;
    if (lora_.max_rank > 0 && q_.lora_in_slots())
      sums = arena_.take(ElementType::f32,
                         {std::min(max_rows_, lora_.block_rows), q_.lora_columns(layer.mlp.gate_up)});
    if (step_.lora_slots != nullptr) {
      q_.gated_linear_lora(layer.mlp.gate_up, layer.activation, lora_input(index, LoraSite::gate_up, input),
                           sums, act, "gate_up");
    } else if (has_lora(index, LoraSite::gate_up)) {
      q_.linear(layer.mlp.gate_up, input, wide, "gate_up");
      lora(index, LoraSite::gate_up, input, wide);
      q_.gated_activate(layer.activation, wide, act);
    } else {
      q_.gated_linear(layer.mlp.gate_up, layer.activation, input, wide, act, "gate_up");
    }
    linear(layer.mlp.down, index, LoraSite::down, act, branch_, "down");
  }

  /// x += after(branch). Returns before(x), the input of the next branch; norms that the model lacks are
  /// empty.
  Tensor add_branch(const NormWeight& after, const NormWeight& before) {
    if (after) q_.norm(after, branch_, branch_);
    if (!before) {
      q_.add(x_, branch_, w_.scales.residual);
      return stream_input();
    }
    q_.add_norm(x_, branch_, w_.scales.residual, before, normed_);
    return normed_;
  }

  const ModelConfig& c_;
  const PlacedDecoder& w_;
  const int64_t max_rows_, max_logit_rows_;
  const std::vector<int>& hidden_;
  const LoraLimits lora_;
  const StepTensors& step_;
  Arena& arena_;
  OpQueue& q_;
  int64_t rows_;
  bool kept_ = false;           // rows are those of step_.logit_rows
  Tensor lora_scratch_;         // f32; empty without adapters
  Tensor x_, normed_, branch_;  // [rows, hidden]; x_ is f32
  Tensor kept_x_;  // f32 [max_logit_rows, hidden]: x_ of the last block; empty where normed_ has its type
  Tensor shortcut_, kept_shortcut_;  // act [rows, hidden], [max_logit_rows, hidden]; empty without shortcuts
  std::array<RopeTable, kMaxRopes> ropes_;
  Tensor chosen_;  // i32 [rows, sparse_topk], where attention is sparse
};

}  // namespace

void decoder_forward(const ModelConfig& config, const PlacedDecoder& weights, const DecoderLimits& limits,
                     const StepTensors& step, const Tensor& logits, Arena& arena, OpQueue& queue) {
  Forward(config, weights, limits, step, arena, queue).run(logits);
}

void moe_forward(const PlacedMoe& moe, const Tensor& x, const Tensor& out, int64_t max_rows, Arena& arena,
                 OpQueue& queue, const ExpertLora* lora) {
  const Arena::Scope scope(arena);
  const int64_t rows = x.size(0), chosen = moe.rule.experts_per_token;
  const Tensor logits = arena.take(ElementType::f32, {max_rows, moe.rule.num_experts}).first_rows(rows);
  const Routing routing{arena.take(ElementType::i32, {max_rows, chosen}).first_rows(rows),
                        arena.take(ElementType::f32, {max_rows, chosen}).first_rows(rows)};
  ExpertWeights weights = moe.weights();
  weights.lora = lora;
  const Tensor scratch =
      arena.take(ElementType::u8, {queue.expert_scratch(weights, moe.rule.experts_per_token, max_rows)});
  queue.linear(moe.router, x, logits, "router");
  queue.route(moe.rule, logits, routing);
  queue.experts(weights, x, routing, scratch, out);
}

}  // namespace fovea
