#include "attention/requests.h"

#include <algorithm>
#include <vector>

#include "attention/resolve_name.h"
#include "base/same_name.h"
#include "fovea/attention.h"
#include "fovea/attention_config.h"

namespace fovea {
namespace {

std::string trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ')
    text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ')
    text.remove_suffix(1);
  return std::string(text);
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  for (size_t comma; (comma = text.find(',')) != std::string_view::npos; text.remove_prefix(comma + 1))
    parts.push_back(trim(text.substr(0, comma)));
  parts.push_back(trim(text));
  return parts;
}

using Item = Requests::Item;
using Place = Requests::Place;

Phase other(Phase phase) {
  return phase == Phase::prefill ? Phase::decode : Phase::prefill;
}

std::string valid_kinds() {
  std::string out;
  for (unsigned i = 0; i < static_cast<unsigned>(LayerKind::count_); ++i)
    out.append(out.empty() ? "" : ", ").append(to_string(static_cast<LayerKind>(i)));
  return out;
}

std::optional<Phase> parse_phase(std::string_view name) {
  for (Phase phase : {Phase::prefill, Phase::decode})
    if (same_name(name, to_string(phase))) return phase;
  return std::nullopt;
}

/// Keys of other engines' grammars, for features that this engine lacks.
std::string_view why_not(std::string_view key) {
  if (same_name(key, "verify")) return "speculative decoding is not supported here; leave it out";
  if (same_name(key, "draft")) return "no draft model runs here; leave it out";
  if (same_name(key, "vit")) return "no vision tower runs here; leave it out";
  return {};
}

class Reader {
 public:
  Reader(const AttentionConfig& config, std::span<const LayerKind> kinds, const BackendRegistry& registry)
      : config_(config), kinds_(kinds), registry_(registry) {}

  Result<std::vector<Item>> run() {
    if (!is_auto(config_.backend)) {
      const std::string from = setting(config_, "backend");
      FOVEA_RETURN_IF_ERROR(config_.backend.find('=') == std::string::npos
                                ? add_name_or_pair(std::nullopt, config_.backend, from)
                                : add_list(config_.backend, from));
    }
    FOVEA_RETURN_IF_ERROR(add_phase(Phase::prefill, config_.prefill_backend, "prefill_backend"));
    FOVEA_RETURN_IF_ERROR(add_phase(Phase::decode, config_.decode_backend, "decode_backend"));
    FOVEA_RETURN_IF_ERROR(add_kinds());
    return std::move(items_);
  }

 private:
  Status add_name_or_pair(std::optional<LayerKind> kind, const std::string& given, const std::string& from) {
    const std::string shown = kind ? std::string(to_string(*kind)) + "=" + given : given;
    if (given.find(',') == std::string::npos)
      return add({kind, {}, is_auto(trim(given)) ? "" : trim(given), from, shown});
    const std::vector<std::string> names = split(given);
    const std::string quoted = "attention backend '" + given + "'";
    if (names.size() > 2) return invalid(quoted + " has more than one comma; a pair is 'PREFILL,DECODE'");
    if (names[0].empty() || names[1].empty())
      return invalid(quoted + " has no " + (names[0].empty() ? "prefill" : "decode") +
                     " half; name both as 'PREFILL,DECODE', or give one name for both phases");
    if (is_auto(names[0]) || is_auto(names[1]))
      return invalid(quoted +
                     " has 'auto' in a pair; to choose one phase and leave the other automatic use " +
                     "--prefill-attention-backend or --decode-attention-backend alone");
    if (same_backend(names[0], names[1], registry_)) {
      const BackendRegistry::Entry* entry = registry_.find(names[0]);
      const std::string name = entry == nullptr ? names[0] : std::string(entry->info->name);
      return add({kind, {}, names[0], from, shown, "P/D attention backends are the same: " + name});
    }
    FOVEA_RETURN_IF_ERROR(add({kind, Phase::prefill, names[0], from, shown}));
    return add({kind, Phase::decode, names[1], from, shown});
  }

  Status add_list(const std::string& given, const std::string& from) {
    for (const std::string& part : split(given)) {
      const size_t equals = part.find('=');
      const std::string quoted = "attention backend '" + given + "'";
      if (equals == std::string::npos)
        return invalid(quoted + " mixes KEY=NAME with '" + part +
                       "'; give each as prefill=, decode=, KIND=, KIND.prefill= or KIND.decode=");
      FOVEA_TRY(item, parse_key(trim(part.substr(0, equals)), from));
      item.name = trim(part.substr(equals + 1));
      if (item.name.empty() || item.name.find('=') != std::string::npos)
        return invalid(quoted + " has '" + part + "'; KEY=NAME has one name after one '='");
      if (is_auto(item.name)) item.name.clear();
      for (const Item& known : items_)
        if (known.kind == item.kind && known.phase == item.phase)
          return invalid(quoted + " has " + item.key() + " twice; give it once");
      item.given = given;
      item.listed = true;
      items_.push_back(std::move(item));
    }
    return {};
  }

  Result<Item> parse_key(const std::string& key, const std::string& from) const {
    if (const auto phase = parse_phase(key)) return Item{{}, phase, {}, from, {}};
    const size_t dot = key.find('.');
    const std::string name = key.substr(0, dot);
    if (const std::string_view why = why_not(name); !why.empty())
      return invalid(from + " has '" + key + "='; " + std::string(why));
    const auto kind = parse_layer_kind(name);
    if (!kind) return unknown_layer_kind(name, from);
    if (dot == std::string::npos) return Item{kind, {}, {}, from, {}};
    const auto phase = parse_phase(key.substr(dot + 1));
    if (!phase) return invalid(from + " has '" + key + "='; use KIND.prefill or KIND.decode");
    return Item{kind, phase, {}, from, {}};
  }

  Status add_phase(Phase phase, const std::string& given, std::string_view key) {
    if (given.empty()) return {};
    const std::string from = setting(config_, key);
    if (given.find_first_of(",=") != std::string::npos)
      return invalid(from + " '" + given + "' must be one name; pairs and lists go to --attention-backend");
    Item item{{}, phase, is_auto(given) ? "" : trim(given), from, given};
    item.place = phase == Phase::prefill ? Place::prefill_backend : Place::decode_backend;
    return add(std::move(item));
  }

  Status add_kinds() {
    for (const auto& [kind, given] : config_.backend_per_kind) {
      if (given.empty()) continue;
      const std::string from = setting(config_, "backend_per_kind");
      if (given.find('=') != std::string::npos)
        return invalid(from + " of " + std::string(to_string(kind)) + " is '" + given +
                       "'; it must be a name, auto or a pair 'PREFILL,DECODE'");
      FOVEA_RETURN_IF_ERROR(add_name_or_pair(kind, given, from));
    }
    for (const Item& item : items_)
      if (item.kind && std::ranges::find(kinds_, *item.kind) == kinds_.end()) return lacks(item);
    return {};
  }

  Error lacks(const Item& item) const {
    std::vector<std::string> has;
    for (LayerKind kind : kinds_)
      has.emplace_back(to_string(kind));
    return invalid(item.from + " names a backend for " + std::string(to_string(*item.kind)) +
                   " layers, but this model has none; its layer kinds are: " + join(has, ", "));
  }

  /// Two equally specific settings with different backends for the same phase contradict each other.
  Status add(Item item) {
    if (item.kind) item.place = Place::backend_per_kind;  // lists don't come this way
    for (const Item& known : items_) {
      const bool phases_meet = !known.phase || !item.phase || known.phase == item.phase;
      // A phase's flag may override a name for both phases; for a kind there is only one such setting.
      const bool same_scope = known.phase == item.phase || (item.kind && phases_meet);
      if (known.kind == item.kind && same_scope && !same_backend(known.name, item.name, registry_))
        return invalid(item.from + " '" + item.given + "' contradicts " + known.from + " '" + known.given +
                       "'; give only one of them");
    }
    items_.push_back(std::move(item));
    return {};
  }

  const AttentionConfig& config_;
  std::span<const LayerKind> kinds_;
  const BackendRegistry& registry_;
  std::vector<Item> items_;
};

}  // namespace

Error unknown_layer_kind(std::string_view name, std::string_view where) {
  return invalid("Unknown KV cache group kind '" + std::string(name) + "' in " + std::string(where) +
                 ". Valid kinds are: " + valid_kinds());
}

Result<Requests> Requests::read(const AttentionConfig& config, std::span<const LayerKind> kinds,
                                const BackendRegistry& registry) {
  FOVEA_TRY(items, Reader(config, kinds, registry).run());
  Requests requests;
  requests.items_ = std::move(items);
  requests.kinds_ = kinds.size();
  requests.only_linear_ = kinds.size() == 1 && kinds.front() == LayerKind::linear;
  for (LayerKind kind : kinds)
    for (Phase phase : {Phase::prefill, Phase::decode})
      if (const Item* best = requests.best(kind, phase))
        requests.table_[static_cast<size_t>(kind)][static_cast<size_t>(phase)] = {
            best->name, best->from, best->phase.has_value(), best->note};
  return requests;
}

std::string Requests::Item::key() const {
  std::string key = kind ? std::string(to_string(*kind)) : std::string();
  if (phase) key.append(key.empty() ? "" : ".").append(to_string(*phase));
  return key;
}

const Item* Requests::best(LayerKind kind, Phase phase) const {
  const Item* best = nullptr;
  for (const Item& item : items_) {  // among equally specific settings the last: they agree
    if (!item.kind && kind == LayerKind::linear && !only_linear_) continue;
    if (item.covers(kind, phase) && (best == nullptr || item.exactness() >= best->exactness())) best = &item;
  }
  return best;
}

std::vector<std::string> Requests::names() const {
  std::vector<std::string> names;
  for (const Item& item : items_)
    if (!item.name.empty()) names.push_back(item.name);
  return names;
}

bool Requests::together(LayerKind kind, Phase phase) const {
  return kind == LayerKind::encoder || best(kind, phase) == best(kind, other(phase));
}

std::string Requests::changed_list(LayerKind kind, Phase phase, bool both, const std::string& name) const {
  Item wanted{kind, {}, name, {}, {}};
  if (!both) wanted.phase = phase;
  std::string list;
  const auto add = [&](const Item& item) {
    list.append(list.empty() ? "" : ",").append(item.key()).append("=");
    list.append(item.name.empty() ? "auto" : item.name);
  };
  const Item* now = best(kind, phase);
  const bool of_phase_alone = kinds_ == 1 && !both && now != nullptr && now->listed && !now->kind;
  if (of_phase_alone) wanted.kind.reset();
  for (const Item& item : items_) {
    const bool replaced =
        of_phase_alone ? &item == now : item.kind == kind && (both || !item.phase || item.phase == phase);
    // A name for both phases is kept for the other phase.
    if (item.listed && item.kind == kind && !both && !item.phase) {
      Item rest = item;
      rest.phase = other(phase);
      if (best(kind, other(phase)) == &item) add(rest);
    } else if (item.listed && !replaced) {
      add(item);
    }
  }
  add(wanted);
  return "--attention-backend " + list;
}

std::string Requests::change(LayerKind kind, Phase phase, bool both, const std::string& name) const {
  const Item* now = best(kind, phase);
  const Item* rest = best(kind, other(phase));
  const std::string kept = rest == nullptr ? std::string() : rest->name;
  const auto pair = [&] { return phase == Phase::prefill ? name + "," + kept : kept + "," + name; };
  std::string of_phase = "--" + std::string(to_string(phase)) + "-attention-backend " + name;
  const std::string of_kind = "-ac.backend_per_kind." + std::string(to_string(kind)) + "=";
  if (now != nullptr && now->listed) return changed_list(kind, phase, both, name);
  if (now != nullptr && now->place == Place::backend_per_kind)
    return of_kind + (both || kept.empty() ? name : pair());
  if (now != nullptr && now->place != Place::backend && kinds_ == 1) return of_phase;
  if (kinds_ > 1 && (both || !kept.empty())) return of_kind + (both ? name : pair());
  if (kinds_ > 1) return changed_list(kind, phase, both, name);
  if (both) return "--attention-backend " + name;
  return now != nullptr && now->phase ? "--attention-backend " + pair() : of_phase;
}

}  // namespace fovea
