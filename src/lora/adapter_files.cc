#include "lora/adapter_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/thread_pool.h"
#include "files/mapped_file.h"
#include "files/model_folder.h"
#include "files/safetensors.h"
#include "files/text_file.h"
#include "lora/adapter_config.h"

namespace fovea {
namespace {

constexpr size_t kMaxConfig = 1 << 20;  // bytes
constexpr std::string_view kPrefix = "base_model.model.";

/// A module of the model that can have matrices.
struct Place {
  int layer = 0;
  int expert = -1;  ///< the shared one follows the others; negative: none
  LoraSite site = LoraSite::qkv;
  int64_t first_output = 0, n = 0, k = 0;
};

/// One matrix of a tensor's name.
struct TensorName {
  std::string module;
  bool is_a = false;
};

std::string tensor_called(std::string_view name) {
  return "tensor \"" + printable(name, 200) + "\"";
}

/// "base_model.model.MODULE.lora_A.weight", also with the adapter's name "default" before "weight".
std::optional<TensorName> parse_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  for (const bool is_a : {true, false})
    for (const char* end : {".weight", ".default.weight"}) {
      const std::string suffix = std::string(is_a ? ".lora_A" : ".lora_B") + end;
      if (name.ends_with(suffix) && name.size() > suffix.size())
        return TensorName{std::string(name.substr(0, name.size() - suffix.size())), is_a};
    }
  return std::nullopt;
}

/// What a tensor is that has another name.
std::string what_else(std::string_view name) {
  if (name.find("lora_magnitude_vector") != name.npos)
    return "is of a DoRA adapter, which is not supported; merge it into the model with PEFT";
  if (name.find("lora_embedding_") != name.npos)
    return "adapts the embedding, which is not supported; train without embed_tokens";
  if (name.find("modules_to_save") != name.npos || name.find("lora_") == name.npos)
    return "is a whole weight or bias (modules_to_save, bias), which is not supported; merge the adapter "
           "into the model with PEFT";
  return "is not a matrix of a LoRA adapter; names are base_model.model.MODULE.lora_A.weight and "
         "...lora_B.weight";
}

/// Takes a decimal number below `limit` and the dot behind it.
std::optional<int> take_number(std::string_view& rest, int64_t limit) {
  const size_t dot = rest.find('.');
  if (dot == 0 || dot == rest.npos || (rest[0] == '0' && dot != 1)) return std::nullopt;
  int number = 0;
  const char* const first = rest.data();
  const auto [end, error] = std::from_chars(first, first + dot, number);
  if (error != std::errc() || end != first + dot || number < 0 || number >= limit) return std::nullopt;
  rest.remove_prefix(dot + 1);
  return number;
}

/// The module of an expert, such as "experts.3.gate_proj", in the block of a layer's experts.
std::optional<Place> find_expert(std::string_view rest, const LoraShape& shape, Place place) {
  int64_t wide = shape.expert_intermediate;
  std::array<std::string, 3> parts = shape.expert_parts;
  if (const std::string shared = shape.shared_name + "."; rest.starts_with(shared)) {
    if (shape.shared_intermediate == 0) return std::nullopt;
    wide = shape.shared_intermediate;
    place.expert = static_cast<int>(shape.experts);
    parts = {"gate_proj", "up_proj", "down_proj"};
    rest.remove_prefix(shared.size());
  } else {
    constexpr std::string_view kExperts = "experts.";
    if (!rest.starts_with(kExperts)) return std::nullopt;
    rest.remove_prefix(kExperts.size());
    const auto expert = take_number(rest, shape.experts);
    if (!expert) return std::nullopt;
    place.expert = *expert;
  }
  const auto at = [&](LoraSite site, int64_t first, int64_t n, int64_t k) {
    place.site = site, place.first_output = first, place.n = n, place.k = k;
    return place;
  };
  if (rest == parts[0]) return at(LoraSite::gate_up, 0, wide, shape.hidden);
  if (rest == parts[1]) return at(LoraSite::gate_up, wide, wide, shape.hidden);
  if (rest == parts[2]) return at(LoraSite::down, 0, shape.hidden, wide);
  return std::nullopt;
}

/// Null: the model has no such module, or it can't be adapted.
std::optional<Place> find_place(const std::string& module, const LoraShape& shape) {
  std::string_view rest = module;
  bool found = false;
  for (const std::string_view prefix :
       {"model.layers.", "language_model.model.layers.", "model.language_model.layers."})
    if (!found && rest.starts_with(prefix)) rest.remove_prefix(prefix.size()), found = true;
  if (!found) return std::nullopt;
  const auto layer = take_number(rest, static_cast<int64_t>(shape.dense_mlp.size()));
  if (!layer) return std::nullopt;
  Place place;
  place.layer = *layer;

  const auto is = [&](const std::string& name) { return rest == name; };
  const std::string attention = "self_attn.", mlp = shape.mlp_name + ".";
  const auto at = [&](LoraSite site, int64_t first, int64_t n, int64_t k) {
    place.site = site, place.first_output = first, place.n = n, place.k = k;
    return place;
  };
  const int64_t hidden = shape.hidden, q = shape.q, kv = shape.kv, wide = shape.intermediate;
  if (is(attention + "o_proj")) return at(LoraSite::o, 0, hidden, q);
  if (shape.record > 0) {
    if (is(attention + "kv_a_proj_with_mqa"))
      return at(LoraSite::qkv, shape.q_rank > 0 ? shape.q_rank : shape.queries, shape.record, hidden);
    if (shape.q_rank == 0 && is(attention + "q_proj")) return at(LoraSite::qkv, 0, shape.queries, hidden);
    if (shape.q_rank > 0 && is(attention + "q_a_proj")) return at(LoraSite::qkv, 0, shape.q_rank, hidden);
    if (shape.q_rank > 0 && is(attention + "q_b_proj"))
      return at(LoraSite::q_up, 0, shape.queries, shape.q_rank);
    if (rest.starts_with(attention)) return std::nullopt;
  }
  if (shape.stacked && is(attention + "qkv_proj")) return at(LoraSite::qkv, 0, q + 2 * kv, hidden);
  if (!shape.stacked && is(attention + "q_proj")) return at(LoraSite::qkv, 0, q, hidden);
  if (!shape.stacked && is(attention + "k_proj")) return at(LoraSite::qkv, q, kv, hidden);
  if (!shape.stacked && is(attention + "v_proj")) return at(LoraSite::qkv, q + kv, kv, hidden);
  if (!shape.dense_mlp[static_cast<size_t>(place.layer)]) {
    if (shape.experts == 0 || !rest.starts_with(shape.expert_block)) return std::nullopt;
    return find_expert(rest.substr(shape.expert_block.size()), shape, place);
  }
  if (is(mlp + "down_proj")) return at(LoraSite::down, 0, hidden, wide);
  if (shape.stacked && is(mlp + "gate_up_proj")) return at(LoraSite::gate_up, 0, 2 * wide, hidden);
  if (!shape.stacked && is(mlp + "gate_proj")) return at(LoraSite::gate_up, 0, wide, hidden);
  if (!shape.stacked && is(mlp + "up_proj")) return at(LoraSite::gate_up, wide, wide, hidden);
  return std::nullopt;
}

class Reader {
 public:
  Reader(std::string dir, const LoraShape& shape, int max_rank)
      : dir_(std::move(dir)), shape_(shape), max_rank_(max_rank) {}

  Result<LoraAdapter> read() {
    const std::string config_file = dir_ + "/adapter_config.json";
    FOVEA_TRY(text, read_text_file(config_file, kMaxConfig));
    FOVEA_TRY(config, parse_adapter_config(text, config_file));
    FOVEA_RETURN_IF_ERROR(open());
    FOVEA_TRY(rules, AdapterRules::create(config));
    for (const SafetensorsEntry& entry : entries_)
      FOVEA_RETURN_IF_ERROR(add(entry, rules));
    if (modules_.empty()) return invalid(file_ + ": has no tensors; save the adapter again");
    for (auto& [name, module] : modules_)
      FOVEA_RETURN_IF_ERROR(check(name, module, rules));
    for (const std::string& target : rules.unmatched())
      FOVEA_LOG(warning) << config_file << ": target_modules has \"" << printable(target)
                         << "\", for which the adapter has no matrices";
    return pack();
  }

 private:
  struct Module {
    Place place;
    const SafetensorsEntry *a = nullptr, *b = nullptr;
    int64_t rank = 0;
    float scale = 1;
  };

  Status open() {
    file_ = dir_ + "/adapter_model.safetensors";
    std::error_code ignored;
    if (!std::filesystem::exists(file_, ignored) &&
        std::filesystem::exists(dir_ + "/adapter_model.bin", ignored))
      return unsupported(dir_ + "/adapter_model.bin: pickled adapters are not read; save it as safetensors");
    FOVEA_TRY(map, MappedFile::open(file_));
    map_ = std::move(map);
    FOVEA_TRY(entries, parse_safetensors(map_.bytes(), file_));
    entries_ = std::move(entries);
    return {};
  }

  Status error(const SafetensorsEntry& entry, const std::string& text,
               ErrorCode code = ErrorCode::invalid_argument) const {
    return Error{code, file_ + ": " + tensor_called(entry.name) + " " + text};
  }

  Status add(const SafetensorsEntry& entry, AdapterRules& rules) {
    const auto name = parse_name(entry.name);
    if (!name) return error(entry, what_else(entry.name), ErrorCode::unsupported);
    const auto place = find_place(name->module, shape_);
    if (!place && shape_.record > 0 && name->module.ends_with(".kv_b_proj"))
      return error(
          entry,
          "is of kv_b_proj, which is part of the queries and the attention's result here and can't be "
          "adapted; train without it, or merge the adapter into the model with PEFT",
          ErrorCode::unsupported);
    if (!place && name->module.find("expert") != std::string::npos && shape_.experts == 0)
      return error(entry,
                   "is of an expert; those of this model or on this device can't be adapted: serve it on the "
                   "CPU, where experts with matrices of their own can, or merge it into the model with PEFT",
                   ErrorCode::unsupported);
    if (!place)
      return error(entry,
                   "is of a module that this model lacks or that can't be adapted; " + can_be_adapted(),
                   ErrorCode::unsupported);
    FOVEA_TRY(targeted, rules.targets(name->module));
    if (!targeted)
      return error(entry, "is of a module that target_modules of adapter_config.json doesn't name");
    if (!entry.type.dtype())
      return error(entry, "has type " + std::string(entry.type.name) + "; F32, F16 and BF16 are supported",
                   ErrorCode::unsupported);
    Module& module = modules_[name->module];
    module.place = *place;
    const SafetensorsEntry*& matrix = name->is_a ? module.a : module.b;
    if (matrix != nullptr) return error(entry, "is given twice, also as " + tensor_called(matrix->name));
    matrix = &entry;
    return {};
  }

  std::string can_be_adapted() const {
    std::string layers =
        "layers 0 to " + std::to_string(shape_.dense_mlp.size() - 1) + " have self_attn." +
        (shape_.record > 0
             ? std::string(shape_.q_rank > 0 ? "{q_a,q_b,o}_proj" : "{q,o}_proj") + " and kv_a_proj_with_mqa"
         : shape_.stacked ? "{qkv,o}_proj"
                          : "{q,k,v,o}_proj");
    if (shape_.experts > 0)
      layers += ", those with experts " + shape_.expert_block + "experts.N.{" + shape_.expert_parts[0] + "," +
                shape_.expert_parts[1] + "," + shape_.expert_parts[2] + "}";
    if (std::ranges::find(shape_.dense_mlp, true) == shape_.dense_mlp.end()) return layers;
    return layers + " and " + shape_.mlp_name +
           (shape_.stacked ? ".{gate_up,down}_proj" : ".{gate,up,down}_proj");
  }

  Status check(const std::string& name, Module& module, AdapterRules& rules) {
    if (!module.a || !module.b)
      return invalid(file_ + ": module " + name + " has no lora_" + (module.a ? "B" : "A") +
                     "; save the adapter again");
    FOVEA_TRY(rule, rules.module(name));
    module.rank = rule.rank;
    module.scale = rule.scale;
    const auto expect = [&](const SafetensorsEntry& entry, int64_t rows, int64_t columns) -> Status {
      const std::vector<uint64_t> shape{static_cast<uint64_t>(rows), static_cast<uint64_t>(columns)};
      if (entry.shape == shape) return {};
      return error(entry, "has shape " + shape_string(entry.shape) + "; " + shape_string(shape) +
                              " is needed by the model and the rank in adapter_config.json");
    };
    FOVEA_RETURN_IF_ERROR(expect(*module.a, module.rank, module.place.k));
    FOVEA_RETURN_IF_ERROR(expect(*module.b, module.place.n, module.rank));
    if (module.rank > max_rank_)
      return invalid(file_ + ": module " + name + " has rank " + std::to_string(module.rank) +
                     ", the limit is " + std::to_string(max_rank_) + "; start with --max-lora-rank " +
                     std::to_string(module.rank));
    return {};
  }

  Result<LoraAdapter> pack() {
    LoraAdapter out;
    out.layers.resize(shape_.dense_mlp.size());
    std::map<std::tuple<int, int, LoraSite>, std::vector<const Module*>> sites;
    for (const auto& [name, module] : modules_) {
      sites[{module.place.layer, module.place.expert, module.place.site}].push_back(&module);
      out.rank = std::max(out.rank, static_cast<int>(module.rank));
    }
    for (auto& [key, modules] : sites) {
      std::ranges::sort(modules, {}, [](const Module* m) { return m->place.first_output; });
      const auto [layer, expert, which] = key;
      const auto l = static_cast<size_t>(layer);
      if (expert < 0) {
        FOVEA_RETURN_IF_ERROR(pack_site(modules, out.layers[l][static_cast<size_t>(which)]));
        continue;
      }
      out.experts.resize(out.layers.size());
      out.experts[l].resize(static_cast<size_t>(shape_.experts) + 1);
      auto& sites_of_expert = out.experts[l][static_cast<size_t>(expert)];
      FOVEA_RETURN_IF_ERROR(pack_site(modules, sites_of_expert[which == LoraSite::down ? 1 : 0]));
    }
    return out;
  }

  Status pack_site(const std::vector<const Module*>& modules, LoraWeights& out) {
    int64_t ranks = 0;
    DType type = *modules.front()->a->type.dtype();
    for (const Module* module : modules) {
      ranks += module->rank;
      if (*module->a->type.dtype() != type) type = DType::f32;
    }
    out.a = PackedMatrix(ranks, modules.front()->place.k, type);
    int64_t rank = 0;
    for (const Module* module : modules) {
      FOVEA_RETURN_IF_ERROR(pack_rows(*module->a, out.a, rank, module->rank));
      LoraWeights::Module& part = out.modules.emplace_back();
      part.b = PackedMatrix(module->place.n, module->rank, *module->b->type.dtype());
      FOVEA_RETURN_IF_ERROR(pack_rows(*module->b, part.b, 0, module->place.n));
      part.first_output = module->place.first_output;
      part.first_rank = rank;
      part.scale = module->scale;
      rank += module->rank;
    }
    return {};
  }

  Status pack_rows(const SafetensorsEntry& entry, PackedMatrix& out, int64_t first, int64_t rows) {
    buffer_.resize(static_cast<size_t>(entry.end - entry.begin));
    FOVEA_RETURN_IF_ERROR(map_.read(entry.begin, buffer_));
    out.pack_rows(first, rows, buffer_.data(), *entry.type.dtype(), pool_);
    return {};
  }

  std::string dir_, file_;
  const LoraShape& shape_;
  int max_rank_;
  MappedFile map_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, Module> modules_;
  std::vector<std::byte> buffer_;
  ThreadPool pool_{1};  // the engine's may be in use
};

}  // namespace

Result<LoraAdapter> read_lora_adapter(const std::string& path, const LoraShape& shape, int max_rank) {
  FOVEA_CHECK(!shape.dense_mlp.empty());
  FOVEA_TRY(dir, resolve_model_dir(path, "adapter_config.json"));
  return Reader(std::move(dir), shape, max_rank).read();
}

}  // namespace fovea
