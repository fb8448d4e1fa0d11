#include "sample_case.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/logprobs.h"
#include "engine/sampler.h"

namespace fovea::cuda {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

template <class T, size_t n>
T one_of(std::mt19937_64& rng, const std::array<T, n>& values) {
  return values[rng() % n];
}

bool chance(std::mt19937_64& rng, unsigned one_in) {
  return rng() % one_in == 0;
}

std::vector<int32_t> some_ids(std::mt19937_64& rng, size_t count, int32_t below) {
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids)
    id = static_cast<int32_t>(rng() % static_cast<uint64_t>(below));
  return ids;
}

/// Edits that often meet: all tokens are of a small alphabet.
void add_edits(SampleRequest& r, std::mt19937_64& rng, int32_t vocab) {
  const int32_t alphabet = std::min(vocab, 12);
  r.edits = true;
  r.prompt_len = rng() % 20;
  r.tokens = some_ids(rng, r.prompt_len + rng() % 20, alphabet);
  if (chance(rng, 2))
    for (int i = 0; i < 6; ++i)
      r.bad_words.push_back(some_ids(rng, 1 + rng() % (i == 5 ? 9 : 3), alphabet));
  if (chance(rng, 3)) {
    r.params.min_tokens = static_cast<int>(rng() % 25);
    r.ends = some_ids(rng, 2, alphabet);
    r.params.stop_token_ids = some_ids(rng, 2, vocab);
  }
  if (chance(rng, 3)) r.forcing.suppressed = some_ids(rng, 3, vocab + 5);
  if (chance(rng, 3)) r.forcing.suppressed_first = some_ids(rng, 3, alphabet);
  if (chance(rng, 6)) {
    r.forcing.last = static_cast<int32_t>(rng() % static_cast<uint64_t>(vocab));
    r.max_tokens = r.tokens.size() - r.prompt_len + 1 + rng() % 3;
  }
  if (chance(rng, 3)) {
    std::vector<int32_t> ids = some_ids(rng, chance(rng, 4) ? 1024 : 5, vocab);
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    for (const int32_t id : ids)
      r.params.logit_bias.push_back({id, static_cast<float>(static_cast<int>(rng() % 200) - 100) * 0.37f});
    if (chance(rng, 8)) r.params.logit_bias[0].bias = 3.4e38f;
  }
  if (chance(rng, 2)) {
    r.params.repetition_penalty = one_of(rng, std::array{1.0f, 1.3f, 0.7f, 1e-30f});
    r.params.frequency_penalty = one_of(rng, std::array{0.0f, 0.37f, -1.5f});
    r.params.presence_penalty = one_of(rng, std::array{0.0f, 0.41f, -2.0f});
  }
  if (chance(rng, 4)) {
    r.params.allowed_token_ids = some_ids(rng, 1 + rng() % 40, vocab);
    if (chance(rng, 4)) r.params.allowed_token_ids = some_ids(rng, 1, vocab);
  }
  for (const LogitBias& b : r.params.logit_bias)
    r.bias.push_back({b.token_id, b.bias});
}

SampleRequest random_request(std::mt19937_64& rng, int32_t r, int32_t width, int32_t vocab) {
  SampleRequest q;
  const auto edge = [&] {
    return one_of(rng, std::array<uint64_t, 7>{0, 1, rng(), ~uint64_t{0}, uint64_t{1} << 63, 0xffffffffu,
                                               uint64_t{1} << 32});
  };
  q.row.logits_row = q.row.slot = r;
  q.row.top = static_cast<int32_t>(rng() % (kMaxTop + 2)) - 1;
  if (chance(rng, 3)) q.row.top = -1;
  q.row.temperature = q.params.temperature =
      one_of(rng, std::array{0.0f, 9e-6f, 1.1e-5f, 0.05f, 0.7f, 1.0f, 1.0f, 2.5f, 50.0f, 1e30f});
  q.row.top_k = q.params.top_k =
      one_of(rng, std::array{0, 0, -1, 1, 2, 7, 50, 300, vocab - 1, vocab, vocab + 1, 1 << 30});
  q.row.top_p = q.params.top_p =
      one_of(rng, std::array{1.0f, 1.0f, 0.9f, 0.5f, 0.95f, 0.999f, 1e-6f, 1e-30f, 1 - 0x1p-24f});
  q.row.min_p = q.params.min_p = one_of(rng, std::array{0.0f, 0.0f, 0.0f, 1e-20f, 0.01f, 0.3f, 1.0f});
  q.row.seed = edge();
  q.row.position = edge();
  if (chance(rng, 6))
    q.row.token = chance(rng, 3) ? kCheckOnly : static_cast<int32_t>(rng() % static_cast<uint64_t>(width));
  if (q.row.token == kDrawToken) {
    if (chance(rng, 2)) add_edits(q, rng, vocab);
    if (chance(rng, 4)) q.row.mask_row = r;
  } else {
    q.row.slot = -1;
  }
  return q;
}

void fill_row(std::mt19937_64& rng, float* x, int32_t vocab, int32_t width) {
  const uint64_t kind = rng() % 12;
  std::normal_distribution<float> normal(0, one_of(rng, std::array{0.5f, 3.0f, 3.0f, 30.0f}));
  const auto low = static_cast<uint32_t>(rng());
  for (int32_t i = 0; i < width; ++i) {
    switch (kind) {
      case 0: x[i] = 1.5f; break;                                     // flat
      case 1: x[i] = std::round(normal(rng)); break;                  // ties, and -0
      case 2: x[i] = static_cast<float>(low % 3 + rng() % 2); break;  // two values
      case 3: x[i] = chance(rng, 20) ? normal(rng) : -kInf; break;    // mostly masked
      case 4: x[i] = normal(rng) * 1e37f; break;                      // huge
      case 5: x[i] = 100.0f + normal(rng) * 0x1p-10f; break;          // neighbours
      case 6: x[i] = chance(rng, 2) ? 0.0f : -0.0f; break;
      default: x[i] = normal(rng);
    }
  }
  const auto at = [&](int32_t first, int32_t end) {
    return first + static_cast<int32_t>(rng() % static_cast<uint64_t>(end - first));
  };
  if (chance(rng, 4)) x[at(0, vocab)] = 25;
  if (chance(rng, 40)) x[at(0, vocab)] = one_of(rng, std::array{kInf, std::nanf(""), -std::nanf("")});
  if (width > vocab && chance(rng, 30)) x[at(vocab, width)] = one_of(rng, std::array{kInf, std::nanf("")});
  if (chance(rng, 50)) std::fill(x, x + vocab, -kInf);
  if (chance(rng, 50)) std::fill(x, x + width, -kInf);
}

SampleResult expected_result(SampleCase& c, size_t r, Sampler& sampler) {
  SampleRequest& q = c.rows[r];
  std::vector<float> logits(c.logits.begin() + static_cast<std::ptrdiff_t>(r) * c.width,
                            c.logits.begin() + static_cast<std::ptrdiff_t>(r + 1) * c.width);
  const std::vector<float> given = logits;
  const auto row = std::span(logits).first(static_cast<size_t>(c.vocab));
  SampleResult out;
  std::memset(&out, 0xff, sizeof out);
  const auto fail = [&](SampleStatus status) {
    out.token = -1;
    out.status = status;
    return out;
  };
  int32_t token = q.row.token;
  const bool usable = scan_logits(given).valid;
  if (token == kDrawToken) {
    if (!scan_logits(row).valid) return fail(SampleStatus::bad_logits);
    LogitsProcessor* const processor = q.edits ? &q.processor : nullptr;
    const auto forced = processor ? processor->forced(q.tokens.size() - q.prompt_len) : std::nullopt;
    if (q.row.mask_row >= 0)
      for (int32_t i = 0; i < c.vocab; ++i)
        if (!(c.masks[r * static_cast<size_t>(c.mask_words()) + static_cast<size_t>(i / 32)] >> (i % 32) &
              1u))
          row[static_cast<size_t>(i)] = -kInf;
    if (forced) {
      token = *forced;
    } else {
      if (!scan_logits(row).valid) return fail(SampleStatus::nothing_left);
      const auto drawn = sampler.sample(
          row, q.params, q.row.seed, q.row.position, processor,
          q.edits ? std::span<const int32_t>(q.tokens) : std::span<const int32_t>(), q.prompt_len);
      if (!drawn)
        return fail(drawn.error().code == ErrorCode::internal ? SampleStatus::bad_logits
                                                              : SampleStatus::nothing_left);
      token = *drawn;
    }
    if (q.row.top >= 0 && !usable) return fail(SampleStatus::bad_logits);
  } else if (!usable) {
    return fail(SampleStatus::bad_logits);
  }
  out.token = token >= 0 ? token : -1;
  out.status = SampleStatus::ok;
  if (q.row.top < 0 || token < 0) return out;
  const TokenLogprobs logprobs = token_logprobs(given, token, std::min(q.row.top, c.width));
  out.logprob = logprobs.token.logprob;
  out.rank = logprobs.token.rank;
  out.num_top = static_cast<int32_t>(logprobs.top.size());
  for (size_t i = 0; i < logprobs.top.size(); ++i) {
    out.top_ids[i] = logprobs.top[i].token_id;
    out.top_logprobs[i] = logprobs.top[i].logprob;
  }
  return out;
}

}  // namespace

EditSpec SampleRequest::spec() const {
  EditSpec spec;
  spec.bad_words = bad_words;
  spec.min_tokens = params.min_tokens;
  spec.ends = ends;
  spec.suppressed = forcing.suppressed;
  spec.suppressed_first = forcing.suppressed_first;
  spec.bias = bias;
  spec.repetition_penalty = params.repetition_penalty;
  spec.frequency_penalty = params.frequency_penalty;
  spec.presence_penalty = params.presence_penalty;
  if (params.allowed_token_ids) spec.allowed = *params.allowed_token_ids;
  spec.forced_last = forcing.last;
  spec.max_tokens = static_cast<int32_t>(max_tokens);
  return spec;
}

SampleCase random_case(uint32_t seed, int rows, int32_t vocab, int32_t padding) {
  std::mt19937_64 rng(seed);
  SampleCase c;
  c.vocab = vocab;
  c.width = vocab + padding;
  c.logits.resize(static_cast<size_t>(rows) * static_cast<size_t>(c.width));
  c.masks.resize(static_cast<size_t>(rows * c.mask_words()));
  for (uint32_t& word : c.masks)
    word = static_cast<uint32_t>(rng() & rng());
  for (int r = 0; r < rows; ++r)
    c.rows.push_back(random_request(rng, r, c.width, vocab));
  for (SampleRequest& q : c.rows) {
    if (!q.edits) continue;
    std::vector<int32_t> ends = q.ends;
    q.processor = LogitsProcessor(q.params, q.bad_words, ends, &q.forcing, q.max_tokens);
    // The device gets the stop tokens in the same list.
    q.ends.insert(q.ends.end(), q.params.stop_token_ids.begin(), q.params.stop_token_ids.end());
    q.row.position = q.tokens.size();
  }
  draw_logits(c, rng);
  return c;
}

void draw_logits(SampleCase& c, std::mt19937_64& rng) {
  for (size_t r = 0; r < c.rows.size(); ++r)
    fill_row(rng, &c.logits[r * static_cast<size_t>(c.width)], c.vocab, c.width);
}

std::vector<SampleResult> expected_results(SampleCase& c) {
  Sampler sampler;
  std::vector<SampleResult> results;
  for (size_t r = 0; r < c.rows.size(); ++r)
    results.push_back(expected_result(c, r, sampler));
  return results;
}

std::string difference(const SampleResult& got, const SampleResult& want, int top) {
  const auto bits = [](float x) {
    uint32_t b = 0;
    std::memcpy(&b, &x, sizeof b);
    return b;
  };
  const auto differ = [](const std::string& what, auto a, auto b) {
    return what + " " + std::to_string(a) + " instead of " + std::to_string(b);
  };
  if (got.status != want.status)
    return differ("status", static_cast<int>(got.status), static_cast<int>(want.status));
  if (got.token != want.token) return differ("token", got.token, want.token);
  if (want.status != SampleStatus::ok || top < 0 || want.token < 0) return {};
  if (bits(got.logprob) != bits(want.logprob)) return differ("logprob", got.logprob, want.logprob);
  if (got.rank != want.rank) return differ("rank", got.rank, want.rank);
  if (got.num_top != want.num_top) return differ("num_top", got.num_top, want.num_top);
  for (int i = 0; i < want.num_top; ++i) {
    if (got.top_ids[i] != want.top_ids[i]) return differ("top id", got.top_ids[i], want.top_ids[i]);
    if (bits(got.top_logprobs[i]) != bits(want.top_logprobs[i]))
      return differ("top logprob", got.top_logprobs[i], want.top_logprobs[i]);
  }
  return {};
}

}  // namespace fovea::cuda
