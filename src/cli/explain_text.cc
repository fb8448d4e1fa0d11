#include <algorithm>
#include <cstdio>

#include "cli/explain.h"

namespace fovea::cli {
namespace {

std::string number(int n) {
  return std::to_string(n);
}

/// "12 layers: sliding_window, 16 heads, 8 kv heads, head size 256, window 1024"
std::string layers_line(const AttentionSpec& spec, int layers) {
  std::string out = "  " + number(layers) + (layers == 1 ? " layer: " : " layers: ");
  out.append(to_string(kind_of(spec))).append(", ");
  if (spec.linear != LinearAttention::none) out.append(to_string(spec.linear)).append(", ");
  out += number(spec.num_heads) + " heads, " + number(spec.num_kv_heads) + " kv head" +
         (spec.num_kv_heads == 1 ? "" : "s") + ", head size " + number(spec.head_dim);
  if (spec.v_head_dim != spec.head_dim) out += " (V " + number(spec.v_head_dim) + ")";
  if (spec.mask.window_left >= 0) out += ", window " + number(spec.mask.window_left + 1);
  if (spec.type == AttentionType::decoder && !spec.mask.causal) out += ", non-causal";
  if (spec.mask.chunk > 0) out += ", chunks of " + number(spec.mask.chunk);
  if (spec.has_sink) out += ", learned sinks";
  if (spec.has_alibi) out += ", ALiBi";
  if (spec.softcap > 0) out += ", soft cap";
  if (spec.mask.spans) out += ", bidirectional image spans";
  return out + "\n";
}

std::string model_text(const Explanation& e) {
  const AttentionShapes& s = e.shapes;
  std::string out = "model: " + e.model + " (" + (s.architecture.empty() ? s.model_type : s.architecture) +
                    ", " + std::string(to_string(s.dtype)) + ", read from " + s.file + ")\n";
  for (size_t i = 0; i < s.specs.size(); ++i)
    out += layers_line(s.specs[i], s.layers[i]);
  if (s.other_layers > 0)
    out += "  " + number(s.other_layers) + " layers without attention (state space, convolution)\n";
  for (const std::string& note : s.notes)
    out += "  note: " + note + "\n";
  out += s.runnable ? "  engine: runs this architecture\n" : "  engine: can't run it: " + s.why_not + "\n";
  return out;
}

std::string flags_text(const Explanation& e) {
  std::string out;
  for (const FlagVerdict verdict : {FlagVerdict::refused, FlagVerdict::noted, FlagVerdict::alias})
    for (const FlagNote& note : e.notes)
      if (note.verdict == verdict)
        out += std::string(to_string(verdict)) + ": " + note.flag + ": " + note.text + "\n";
  for (const EnvironmentNote& note : e.environment)
    out += "environment: " + note.name + "=" + note.value + ": " + note.text + "\n";
  return out;
}

/// Which file of fovea tune is used and what it changes.
std::string tuning_text(const Tuning& tuning) {
  if (tuning.file.empty()) return "";
  if (!tuning.ignored.empty()) return "tune file: " + tuning.file + " is ignored: " + tuning.ignored + "\n";
  std::string out = "tune file: " + tuning.file + ", " + std::to_string(tuning.choices.size()) + " choices\n";
  for (const tune::TunedLinear& tuned : tuning.choices) {
    char times[64];
    std::snprintf(times, sizeof times, " (%.1f us instead of %.1f)", tuned.seconds * 1e6,
                  tuned.automatic_seconds * 1e6);
    out += "  linear " + tune::describe(tuned.choice) + times + "\n";
  }
  return out;
}

std::string drafts_text(const Explanation& e) {
  const SpeculativeConfig& c = e.speculative;
  if (!c.enabled()) return "";
  std::string out = "speculative decoding: " + std::string(to_string(c.method)) + ", at most " +
                    number(c.num_tokens) + " drafts a step and sequence; answers are the same\n";
  for (const KindSelection& kind : e.selection.kinds)
    if (kind.kind != LayerKind::encoder && kind.decode.backend != nullptr)
      out += "  target verify, " + std::string(to_string(kind.kind)) + ": " + kind.decode.backend->label() +
             ", as decode\n";
  if (c.method == DraftMethod::draft_model)
    out +=
        "  draft decode: " + (c.attention_backend.empty() ? "chosen for " + c.model : c.attention_backend) +
        "; explain that model for the reasons\n";
  else if (c.reads_hidden_states())
    out += "  draft decode: one layer, with pages beside the model's, by " +
           (c.attention_backend.empty() ? "a backend that is chosen for it" : c.attention_backend) + "\n";
  else
    out += "  draft decode: no model\n";
  return out;
}

}  // namespace

std::string explanation_text(const Explanation& e) {
  std::string out = model_text(e);
  out += "device: " + describe(e.device) + (e.device.name.empty() ? "" : " (" + e.device.name + ")") +
         (e.device.shared_bytes == 0
              ? ""
              : ", " + std::to_string(e.device.shared_bytes) + " bytes of shared memory a block") +
         ", from " + e.device_from + "\n";
  out += tuning_text(e.tuning);
  out += flags_text(e) + "\n";
  if (e.selection.kinds.empty()) return out + "no layer has attention: there is no backend to choose\n";
  out += explain_in_full(e.selection);
  if (!out.ends_with('\n')) out += '\n';
  out += drafts_text(e);
  return out;
}

}  // namespace fovea::cli
