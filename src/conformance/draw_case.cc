// Makes the problem of a case from its levels: lengths at the edges of its row, values, and memory layout.
#include <algorithm>
#include <cmath>
#include <limits>

#include "conformance/case_space.h"

namespace fovea::conformance {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// Multiply-adds of one problem: bounds the time of a case. A few large ones may exceed it.
constexpr int64_t kBudget = 3'000'000, kLargeBudget = 40'000'000, kChunksBudget = 1'000'000'000;
constexpr int kLargePercent = 8, kLargePercentOfSmallHeads = 70, kLargePercentOfMla = 20;
/// MLA's records are eight times as long as usual heads, and its heads are many.
constexpr int kMostMlaElements = 1 << 25;  // of the pages of many sequences
constexpr int64_t kMlaBudget = 9'000'000, kLargeMlaBudget = 160'000'000;
constexpr int kSmallHeads = 1024;  // elements of a query row and an output row
/// Elements of all queries and outputs, and of all keys and values, of one problem.
constexpr int64_t kMostElements = int64_t{1} << 22;

}  // namespace

class CaseDrawer {
 public:
  CaseDrawer(const CaseSpace& space, const Levels& row, uint64_t seed)
      : space_(space), row_(row), random_(seed) {
    problem().spec = space.spec_of(row);
  }

  Case draw() {
    problem().phase = static_cast<Phase>(at(Knob::phase));
    draw_memory();
    draw_lengths();
    draw_limits();
    draw_values();
    draw_masks();
    draw_sinks();
    if (spec().mask.tree) draw_tree();
    if (at(Knob::kv_sharing) != 0) draw_second();
    case_.want_lse = at(Knob::lse) != 0;
    case_.threads = at(Knob::threads);
    if (const int level = at(Knob::graph); level > 0) case_.graph = static_cast<GraphSupport>(level);
    if (const int level = at(Knob::invariance); level >= 0) case_.invariance = static_cast<Invariance>(level);
    return std::move(case_);
  }

 private:
  int at(Knob knob) const { return *space_.value(row_, knob); }
  Problem& problem() { return case_.problem; }
  AttentionSpec& spec() { return case_.problem.spec; }
  bool decode() { return problem().phase == Phase::decode; }

  void draw_memory() {
    Layout& layout = case_.layout;
    layout.shuffle = random_.bits();
    layout.kv = static_cast<KvLayout>(at(Knob::kv_layout));
    const auto pages = static_cast<PagesLevel>(at(Knob::page_lists));
    layout.page_lists = pages == PagesLevel::lists;
    layout.ragged = pages == PagesLevel::ragged;
    layout.row_padding = at(Knob::padding);
    layout.poison_invisible = at(Knob::poison) != 0;
    layout.packed_hides = space_.device_.kind == DeviceKind::cpu;
    layout.order = static_cast<PageOrder>(at(Knob::page_order));
    layout.null_page = at(Knob::null_page) != 0;
    layout.share_pages = at(Knob::shared_pages) != 0;
    layout.place = static_cast<KvPlace>(at(Knob::place));
    layout.kv_gap = space_.device_.kind == DeviceKind::cpu ? 3 : 16;
    layout.past_kv_ready = at(Knob::past_kv_ready) != 0;
  }

  /// Call after the lengths are drawn. A graph has the limits of its capture, which is larger: other limits
  /// may select another kernel, with another order of summation.
  void draw_limits() {
    AttentionLimits& declared = case_.layout.declared;
    declared = limits_of(problem());
    declared.split_prefill = at(Knob::invariance) != static_cast<int>(Invariance::prefill_chunks);
    if (at(Knob::graph) > 0 && !problem().seqs.empty()) {
      declared.max_seqs += 2;
      for (const Sequence* s : {&problem().seqs.front(), &problem().seqs.back()}) {
        declared.max_tokens += s->n_q;
        declared.max_kv_tokens += s->n_k;
      }
    }
    switch (static_cast<LimitsLevel>(at(Knob::limits))) {
      case LimitsLevel::exact: break;
      case LimitsLevel::larger:
        declared.max_seqs += 1 + random_.below(8);
        declared.max_tokens += random_.below(200);
        declared.max_kv_len += random_.below(4000);
        declared.max_kv_tokens += 1 + random_.below(8000);
        break;
      case LimitsLevel::engine:
        declared.max_seqs = std::max(declared.max_seqs, 256);
        declared.max_tokens = std::max(declared.max_tokens, 2048);
        declared.max_kv_len = std::max(declared.max_kv_len, 128 << 10);
        declared.max_kv_tokens += 32 << 10;
        break;
    }
  }

  /// Lengths at which kernels tend to fail: one before, at and after the ends of pages, windows, chunks and
  /// tiles.
  std::vector<int> edges() {
    const int page = spec().page_size, chunk = spec().mask.chunk;
    const int window = std::max(spec().mask.window_left, spec().mask.window_right) + 1;
    std::vector<int> lengths = {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 255, 257};
    for (const int edge : {page, 2 * page, window, 2 * window, chunk, 2 * chunk})
      if (edge > 0) lengths.insert(lengths.end(), {edge - 1, edge, edge + 1});
    return lengths;
  }

  int64_t usual_budget() { return spec().use_mla ? kMlaBudget : kBudget; }
  /// Maximum rows x keys over all sequences; at least 1.
  int64_t budget(int64_t multiply_adds = 0) {
    if (multiply_adds == 0) multiply_adds = usual_budget();
    return std::max<int64_t>(
        64, multiply_adds / (int64_t{spec().num_heads} * (spec().head_dim + spec().v_head_dim)));
  }
  /// The budget of levels that test large sizes.
  int64_t large_budget() {
    const int percent = small_heads()    ? kLargePercentOfSmallHeads
                        : spec().use_mla ? kLargePercentOfMla
                                         : kLargePercent;
    const int64_t large = spec().use_mla ? kLargeMlaBudget : kLargeBudget;
    return budget(random_.chance(percent) ? large : usual_budget());
  }
  bool small_heads() { return spec().num_heads * (spec().head_dim + spec().v_head_dim) <= kSmallHeads; }
  /// Maximum rows of queries and outputs, or of keys and values, over all sequences.
  int most_rows() const {
    const AttentionSpec& s = case_.problem.spec;
    return static_cast<int>(kMostElements / (int64_t{s.num_heads} * (s.head_dim + s.v_head_dim)));
  }
  int most_keys() const {
    const AttentionSpec& s = case_.problem.spec;
    return static_cast<int>(2 * kMostElements / (int64_t{s.num_kv_heads} * (s.head_dim + s.v_head_dim)));
  }
  bool encoder() {
    return spec().type == AttentionType::encoder || spec().type == AttentionType::encoder_only;
  }

  void add(int n_q, int n_k) {
    Sequence s;
    s.n_q = n_q;
    s.n_k = n_k;
    problem().seqs.push_back(s);
  }

  /// Adds a sequence with at most about `most` rows x keys. `wanted` rows, 0 = as many as allowed.
  void add_bounded(int n_k, int wanted, int64_t most) {
    n_k = static_cast<int>(std::clamp<int64_t>(n_k, 1, std::max<int64_t>(most, 8)));
    if (encoder()) {
      n_k = std::min(n_k, std::max(2, static_cast<int>(std::sqrt(static_cast<double>(most)))));
      return add(n_k, n_k);
    }
    const int64_t fit = std::max<int64_t>(1, most / n_k);
    const int own = spec().type == AttentionType::decoder ? n_k : 40;  // cross attention: not tied to n_k
    const int n_q = static_cast<int>(std::min<int64_t>(fit, own));
    add(wanted > 0 ? std::min(wanted, n_q) : n_q, n_k);
  }

  /// Whether rows may see more later keys than short sequences have.
  bool sees_far_right() {
    const MaskSpec& m = spec().mask;
    const bool uniform = static_cast<BatchLevel>(at(Knob::batch)) == BatchLevel::verify;
    return !decode() && !uniform && !m.causal && !m.packed && m.window_right > 100;
  }

  void draw_lengths() {
    const std::vector<int> lengths = edges();
    const int64_t most = budget();
    const std::vector<int> rows =
        decode() ? std::vector<int>{1} : std::vector<int>{0, 0, 1, 2, 3, 7, 16, 17, 33, 64, 65};
    switch (static_cast<BatchLevel>(at(Knob::batch))) {
      case BatchLevel::edges:
        for (int i = 0; i < 4; ++i)
          add_bounded(random_.pick(lengths), random_.pick(rows), most / 4);
        break;
      case BatchLevel::mixed:
        for (int i = 0; i < 2; ++i)
          add_bounded(random_.pick(lengths), 1, most / 8);
        for (int i = 0; i < 2; ++i)
          add_bounded(40 + random_.below(300), decode() ? 1 + random_.below(3) : 3 + random_.below(60),
                      most / 3);
        break;
      case BatchLevel::holes: draw_holes(lengths, rows, most); break;
      case BatchLevel::long_:
        add_bounded(3, 1, most / 8);
        add_bounded(700 + random_.below(1400), decode() ? 1 : 1 + random_.below(5), most);
        add_bounded(random_.pick(lengths), random_.pick(rows), most / 8);
        break;
      case BatchLevel::more_rows:
        for (const int n_k : {0, 1, 5, 17})
          add(n_k + 1 + random_.below(most > 1000 ? 20 : 3), n_k);
        add_bounded(random_.pick(lengths), random_.pick(rows), most / 2);
        break;
      case BatchLevel::many: draw_many(lengths); break;
      case BatchLevel::split: draw_split(lengths, rows); break;
      case BatchLevel::rows: draw_rows(); break;
      case BatchLevel::verify: {
        const int drafts = 1 + random_.below(15);
        for (int i = 0; i < 3; ++i)
          add(drafts + 1,
              drafts + 1 + std::min(random_.pick(lengths), static_cast<int>(most / 3 / (drafts + 1))));
        break;
      }
    }
    if (sees_far_right()) add_bounded(130 + random_.below(150), 0, most);
    if (spec().mask.tree) draw_tree_rows();
    draw_shared_prefix();
  }

  /// More sequences than most kernels have blocks, mostly with few keys. In a prefill: decodes and short
  /// prompts.
  void draw_many(const std::vector<int>& lengths) {
    const int64_t most = budget();
    const int fit = static_cast<int>(std::min<int64_t>(most / 16, most_rows() / 2));
    const int wanted = random_.chance(40) ? 40 + random_.below(261) : 9 + random_.below(32);
    int seqs = std::clamp(wanted, 9, std::max(12, fit));
    if (spec().use_mla)  // hundreds of pages of 1024 records are gigabytes
      seqs = std::max(9, std::min(seqs, kMostMlaElements / (spec().page_size * spec().head_dim)));
    const int64_t share = std::max<int64_t>(8, most / seqs);
    for (int b = 0; b < seqs; ++b) {
      const int n_k = b % 16 == 5 ? random_.pick(lengths) : 1 + random_.below(40);
      add_bounded(n_k, decode() || random_.chance(60) ? 1 : 1 + random_.below(9),
                  b % 16 == 5 ? 8 * share : share);
    }
  }

  /// Kernels split decodes every 512 to 2048 keys, and a prefill's row tile every 16384.
  void draw_split(const std::vector<int>& lengths, const std::vector<int>& rows) {
    if (at(Knob::invariance) == static_cast<int>(Invariance::prefill_chunks)) return draw_split_chunks();
    const int64_t most = large_budget();
    const int keys =
        random_.chance(small_heads() ? 60 : 20) ? 16385 + random_.below(20000) : 2300 + random_.below(7000);
    const int n_k = static_cast<int>(std::min<int64_t>({keys, most_keys(), std::max<int64_t>(most, 64)}));
    add_bounded(n_k, decode() ? 1 : 1 + random_.below(8), most);
    add_bounded(random_.pick(lengths), random_.pick(rows), budget() / 8);
    if (decode()) add_bounded(n_k / 2 + random_.below(64), 1, most);
  }

  /// More rows than a tile has, whose pieces of a tile or less see keys of several splits: a kernel that
  /// split the keys of few rows only would give the pieces other bits.
  void draw_split_chunks() {
    constexpr int kTileRows = 192, kKeys = 16384;  // the most of any kernel
    const int64_t most = budget(kChunksBudget);
    const int n_q = kTileRows / at(Knob::gqa_ratio) + 1 + random_.below(24);
    const int keys = kKeys + n_q + random_.below(2000);
    add_bounded(static_cast<int>(std::min<int64_t>({keys, most_keys(), std::max<int64_t>(most / n_q, 64)})),
                n_q, most);
  }

  /// A long prompt, or a chunk of one. If that exceeds the budget, the last rows of a prompt with few keys.
  void draw_rows() {
    const int64_t most = large_budget();
    const int wanted = random_.chance(25) ? 1500 + random_.below(3501) : 1001 + random_.below(300);
    if (encoder()) {
      const auto side = static_cast<int>(std::sqrt(static_cast<double>(most)));
      const int n = std::min({wanted, side, most_rows(), most_keys()});
      return add(n, n);
    }
    const int n_q = std::clamp(most_rows(), 1, wanted);
    const auto n_k = static_cast<int>(std::clamp<int64_t>(most / n_q, 5, n_q + 200));
    add_bounded(3 + random_.below(30), 1, budget() / 8);
    add(n_q, std::min(n_k, most_keys()));
  }

  /// Sequences without rows, without keys, or without both, between others.
  void draw_holes(const std::vector<int>& lengths, const std::vector<int>& rows, int64_t most) {
    if (!encoder()) add(0, 1 + random_.below(40));
    add_bounded(random_.pick(lengths), random_.pick(rows), most / 2);
    add(0, 0);
    if (!encoder()) add(decode() ? 1 : 1 + random_.below(3), 0);
    add_bounded(random_.pick(lengths), random_.pick(rows), most / 2);
  }

  /// The first sequence has a row for each tree node; the nodes follow the tokens that are already in the
  /// cache.
  void draw_tree_rows() {
    problem().tree_size = 2 + random_.below(11);
    // No kernel limits the tree size. Engines draft up to 64 tokens, some a few hundred.
    if (at(Knob::tree) == 2) {
      const int wanted = random_.chance(20) ? 200 + random_.below(400) : 17 + random_.below(120);
      const int64_t most = budget() / std::max(problem().seqs.front().n_k, wanted);
      problem().tree_size = std::max(17, static_cast<int>(std::min<int64_t>(wanted, most)));
    }
    Sequence& s = problem().seqs.front();
    if (static_cast<BatchLevel>(at(Knob::batch)) == BatchLevel::verify) {
      problem().tree_size = std::max(problem().tree_size, s.n_q);
      return;
    }
    s.n_q = problem().tree_size;
    s.n_k = std::max(s.n_k, s.n_q);
  }

  /// The common prefix of the two longest sequences, at least one page if they have one.
  void draw_shared_prefix() {
    if (at(Knob::shared_pages) == 0) return;
    std::vector<int> lengths;
    for (const Sequence& s : problem().seqs)
      lengths.push_back(s.n_k);
    std::sort(lengths.begin(), lengths.end(), std::greater<>());
    problem().shared_prefix = lengths.size() < 2 ? 0 : lengths[1] - lengths[1] % spec().page_size;
  }

  Values values() {
    const int level = at(Knob::values);
    Values v;
    v.coded_v = level < 0;
    v.qk_gain = level < 0 ? 1.0f : static_cast<float>(level);
    return v;
  }

  void draw_values() {
    const Sequence* first = nullptr;  // the longest
    size_t longest = 0;
    std::vector<Sequence>& seqs = problem().seqs;
    for (size_t b = 0; b < seqs.size(); ++b) {
      seqs[b] = make_sequence(spec(), seqs[b].n_q, seqs[b].n_k, random_.bits(), values());
      if (seqs[b].n_k > seqs[longest].n_k) longest = b;
    }
    if (problem().shared_prefix == 0) return;
    first = &seqs[longest];
    const auto copy = [&](std::vector<float>& to, const std::vector<float>& from, int64_t tokens, int width) {
      if (!from.empty()) std::copy_n(from.begin(), tokens * width, to.begin());
    };
    for (Sequence& s : seqs) {
      if (&s == first) continue;
      const int64_t tokens = std::min(s.n_k, problem().shared_prefix);
      copy(s.k, first->k, tokens, spec().num_kv_heads * spec().head_dim);
      copy(s.v, first->v, tokens, spec().num_kv_heads * spec().v_head_dim);
      copy(s.k_scales, first->k_scales, tokens, spec().num_kv_heads);
      copy(s.v_scales, first->v_scales, tokens, spec().num_kv_heads);
    }
  }

  void draw_masks() {
    for (Sequence& s : problem().seqs) {
      if (spec().mask.spans) {
        int from = random_.below(20);
        if (s.n_q > 1 && s.n_q <= s.n_k) from = std::min(from, s.n_k - s.n_q);  // to contain some row
        while (from < s.n_k) {
          const int length = 2 + random_.below(60);
          s.spans.push_back({from, std::min(from + length, s.n_k) - 1});
          from += length + 1 + random_.below(80);
        }
      }
      if (!spec().mask.packed) continue;
      s.packed.resize(static_cast<size_t>((int64_t{s.n_q} * s.n_k + 7) / 8));
      const int percent = random_.pick(std::vector<int>{3, 50, 90});
      for (int64_t bit = 0; bit < int64_t{s.n_q} * s.n_k; ++bit)
        if (random_.chance(percent))
          s.packed[static_cast<size_t>(bit / 8)] |= static_cast<uint8_t>(1u << (bit % 8));
    }
  }

  void draw_sinks() {
    const auto level = static_cast<SinkLevel>(at(Knob::sink));
    for (int h = 0; h < spec().num_heads && level != SinkLevel::none; ++h) {
      float sink = 2 * random_.normal();
      if (level == SinkLevel::extreme) sink = random_.pick(std::vector<float>{-kInf, -80, 0, 20, 80, kInf});
      problem().sinks.push_back(sink);
    }
    const auto score = static_cast<ScoreLevel>(at(Knob::score));
    if (score == ScoreLevel::alibi) problem().slopes = drawn_slopes(spec().num_heads, random_);
    if (score == ScoreLevel::canonical_alibi) problem().slopes = canonical_slopes(spec().num_heads);
  }

  /// Every node sees itself and its ancestors; a parent comes before its children.
  void draw_tree() {
    const int64_t n = problem().tree_size;
    std::vector<float>& bias = problem().tree_bias;
    bias.assign(static_cast<size_t>(n * n), -kInf);
    for (int node = 0; node < n; ++node) {
      const auto row = bias.begin() + node * n;
      if (node > 0) std::copy_n(bias.begin() + random_.below(node) * n, n, row);
      row[node] = 0.0f;
    }
    // The tree is a bias; hidden and visible are two of its values.
    if (random_.chance(40))
      for (float& x : bias)
        if (x == 0.0f && random_.chance(50)) x = 0.25f * static_cast<float>(random_.below(17) - 8);
  }

  void draw_second() {
    case_.second = problem();
    for (Sequence& s : case_.second->seqs)
      s.q = make_sequence(spec(), s.n_q, 0, random_.bits(), values()).q;
  }

  const CaseSpace& space_;
  const Levels& row_;
  Random random_;
  Case case_;
};

Case CaseSpace::make(const Levels& row, uint64_t seed) const {
  return CaseDrawer(*this, row, seed).draw();
}

}  // namespace fovea::conformance
