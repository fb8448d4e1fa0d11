#include "conformance/proof.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/json_depth.h"
#include "fovea/result.h"

namespace fovea::conformance {
namespace {

using Json = nlohmann::json;

constexpr CellStatus kStatuses[] = {CellStatus::proven,  CellStatus::other_kernels, CellStatus::refused,
                                    CellStatus::unasked, CellStatus::too_few,       CellStatus::failed};

std::string json_text(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Three significant digits, as more would be noise in an error. JSON has no infinity.
std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", std::isfinite(value) ? value : 1e300);
  return text;
}

std::string counts_of(const std::map<std::string, int64_t>& counts) {
  std::string text = "{";
  for (const auto& [key, count] : counts)
    text.append(text.size() > 1 ? ", " : "")
        .append(json_text(key))
        .append(": ")
        .append(std::to_string(count));
  return text + "}";
}

std::string line_of(const KernelProof& k) {
  return "{\"family\": " + json_text(k.family) + ", \"instance\": " + json_text(k.instance) +
         ", \"cases\": " + std::to_string(k.cases) + ", \"split_cases\": " + std::to_string(k.split_cases) +
         ", \"cells\": " + std::to_string(k.cells) + ", \"least\": " + std::to_string(k.least) + "}";
}

std::string line_of(const CellProof& c) {
  return "{\"cell\": " + json_text(c.cell) + ", \"status\": " + json_text(std::string(to_string(c.status))) +
         ", \"cases\": " + std::to_string(c.cases) + ", \"prefill\": " + counts_of(c.prefill) +
         ", \"decode\": " + counts_of(c.decode) + ", \"worst_error\": " + number(c.worst_error) +
         ", \"worst_lse_error\": " + number(c.worst_lse_error) + ", \"reason\": " + json_text(c.reason) + "}";
}

/// Reads the members of one object; `status` keeps the first error.
class Members {
 public:
  Members(const Json& json, std::string where, Status& status)
      : json_(json), where_(std::move(where)), status_(status) {
    if (!json.is_object()) fail("is not an object");
  }

  std::string text(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_string()) return fail(std::string(key) + " is not a text"), "";
    return value->get<std::string>();
  }

  /// A string without control characters, as it is shown on one line.
  std::string line(const char* key) {
    std::string value = text(key);
    const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
    if (std::any_of(value.begin(), value.end(), control))
      fail(std::string(key) + " is more than a line of text");
    return value;
  }

  std::string line_if_given(const char* key) { return json_.contains(key) ? line(key) : ""; }

  double number(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) return 0;
    if (!value->is_number() || !(value->get<double>() >= 0) || !std::isfinite(value->get<double>()))
      return fail(std::string(key) + " is not a number of 0 or more"), 0;
    return value->get<double>();
  }

  int64_t count(const char* key, int64_t most) {
    const Json* value = find(key);
    if (value == nullptr) return 0;
    if (!value->is_number_unsigned() || value->get<uint64_t>() > static_cast<uint64_t>(most))
      return fail(std::string(key) + " is not an integer from 0 to " + std::to_string(most)), 0;
    return value->get<int64_t>();
  }

  const Json& list(const char* key) {
    static const Json kNone = Json::array();
    const Json* value = find(key);
    if (value == nullptr) return kNone;
    if (!value->is_array()) return fail(std::string(key) + " is not a list"), kNone;
    return *value;
  }

  std::map<std::string, int64_t> counts(const char* key) {
    std::map<std::string, int64_t> out;
    const Json* value = find(key);
    if (value == nullptr) return out;
    if (!value->is_object()) return fail(std::string(key) + " is not an object"), out;
    for (const auto& [name, count] : value->items()) {
      if (!count.is_number_unsigned() || count.get<uint64_t>() > uint64_t{1} << 53)
        return fail(std::string(key) + " has a count that is not an integer from 0 to 2^53"), out;
      out[name] = count.get<int64_t>();
    }
    return out;
  }

  /// Call after all keys have been read.
  void no_others() {
    if (!json_.is_object()) return;
    for (const auto& [key, value] : json_.items())
      if (!asked_.contains(key))
        return fail("has the key " + json_text(key) + ", which a proof does not have");
  }

  void fail(const std::string& what) {
    if (status_) status_ = invalid(where_ + " " + what + "; write the file with fovea conformance --write");
  }

 private:
  const Json* find(const char* key) {
    asked_.insert(key);
    if (!json_.is_object()) return nullptr;
    const auto at = json_.find(key);
    if (at == json_.end()) return fail(std::string("has no ") + key), nullptr;
    return &*at;
  }

  const Json& json_;
  std::string where_;
  Status& status_;
  std::set<std::string, std::less<>> asked_;
};

CellProof read_cell(const Json& json, const std::string& where, Status& status) {
  Members members(json, where, status);
  CellProof cell;
  cell.cell = members.line("cell");
  const std::string given = members.text("status");
  const auto* known = std::find_if(std::begin(kStatuses), std::end(kStatuses),
                                   [&](CellStatus s) { return to_string(s) == given; });
  if (known == std::end(kStatuses))
    members.fail("status is " + json_text(given) + ", not proven, other kernels, refused, unasked or failed");
  else
    cell.status = *known;
  cell.cases = members.count("cases", int64_t{1} << 53);
  cell.prefill = members.counts("prefill");
  cell.decode = members.counts("decode");
  cell.worst_error = members.number("worst_error");
  cell.worst_lse_error = members.number("worst_lse_error");
  cell.reason = members.text("reason");
  members.no_others();
  return cell;
}

KernelProof read_kernel(const Json& json, const std::string& where, Status& status) {
  Members members(json, where, status);
  KernelProof kernel;
  kernel.family = members.line("family");
  kernel.instance = members.line("instance");
  kernel.cases = members.count("cases", int64_t{1} << 53);
  kernel.split_cases = members.count("split_cases", int64_t{1} << 53);
  kernel.cells = members.count("cells", 1 << 20);
  kernel.least = members.count("least", int64_t{1} << 53);
  members.no_others();
  return kernel;
}

BackendProof read_backend(const Json& json, const std::string& where, Status& status) {
  Members members(json, where, status);
  BackendProof backend;
  backend.name = members.line("name");
  backend.version = members.line("version");
  backend.same_as = members.line("same_as");
  backend.commit = members.line_if_given("commit");
  backend.date = members.line_if_given("date");
  backend.cases = members.count("cases", int64_t{1} << 53);
  for (const Json& family : members.list("families")) {
    if (!family.is_string()) return members.fail("families is not a list of names"), backend;
    backend.families.push_back(family.get<std::string>());
  }
  for (const Json& kernel : members.list("kernels"))
    backend.kernels.push_back(
        read_kernel(kernel, where + " kernel " + std::to_string(backend.kernels.size() + 1), status));
  std::set<std::string> seen;
  for (const Json& cell : members.list("cells")) {
    backend.cells.push_back(
        read_cell(cell, where + " cell " + std::to_string(backend.cells.size() + 1), status));
    if (!seen.insert(backend.cells.back().cell).second)
      members.fail("has the cell " + json_text(backend.cells.back().cell) + " twice");
  }
  members.no_others();
  return backend;
}

}  // namespace

std::string_view to_string(CellStatus status) {
  switch (status) {
    case CellStatus::proven: return "proven";
    case CellStatus::other_kernels: return "other kernels";
    case CellStatus::refused: return "refused";
    case CellStatus::unasked: return "unasked";
    case CellStatus::too_few: return "too few cases";
    case CellStatus::failed: return "failed";
  }
  return "?";
}

const BackendProof* Proof::find(std::string_view name, std::string_view version) const {
  const auto at = std::find_if(backends.begin(), backends.end(),
                               [&](const BackendProof& b) { return b.name == name && b.version == version; });
  return at == backends.end() ? nullptr : &*at;
}

std::string to_json(const Proof& p) {
  std::string out =
      "{\n  \"device\": " + json_text(p.device) + ",\n  \"device_name\": " + json_text(p.device_name) +
      ",\n  \"isa\": " + json_text(p.isa) + ",\n  \"driver\": " + json_text(p.driver) +
      ",\n  \"compiler\": " + json_text(p.compiler) + ",\n  \"commit\": " + json_text(p.commit) +
      ",\n  \"date\": " + json_text(p.date) + ",\n  \"threads\": " + std::to_string(p.threads) +
      ",\n  \"seconds\": " + number(p.seconds) + ",\n  \"needed\": " + std::to_string(p.needed) +
      ",\n  \"needed_of_phase\": " + std::to_string(p.needed_of_phase) +
      ",\n  \"needed_of_kernel\": " + std::to_string(p.needed_of_kernel) + ",\n  \"backends\": [";
  const char* between_backends = "\n";
  for (const BackendProof& backend : p.backends) {
    out.append(between_backends)
        .append("    {\n      \"name\": ")
        .append(json_text(backend.name))
        .append(",\n      \"version\": ")
        .append(json_text(backend.version))
        .append(",\n      \"same_as\": ")
        .append(json_text(backend.same_as))
        .append(backend.commit.empty() ? "" : ",\n      \"commit\": " + json_text(backend.commit))
        .append(backend.date.empty() ? "" : ",\n      \"date\": " + json_text(backend.date))
        .append(",\n      \"cases\": ")
        .append(std::to_string(backend.cases))
        .append(",\n      \"families\": ")
        .append(Json(backend.families).dump())
        .append(",\n      \"kernels\": [");
    const char* between_kernels = "\n        ";
    for (const KernelProof& kernel : backend.kernels) {
      out.append(between_kernels).append(line_of(kernel));
      between_kernels = ",\n        ";
    }
    out += backend.kernels.empty() ? "],\n      \"cells\": [" : "\n      ],\n      \"cells\": [";
    const char* between_cells = "\n        ";
    for (const CellProof& cell : backend.cells) {
      out.append(between_cells).append(line_of(cell));
      between_cells = ",\n        ";
    }
    out += "\n      ]\n    }";
    between_backends = ",\n";
  }
  return out + "\n  ]\n}\n";
}

Result<Proof> parse_proof(std::string_view text, const std::string& file) {
  if (json_nests_deeper(text)) return invalid(file + " is not a proof: it nests too deep");
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return invalid(file + " is not JSON; write it with fovea conformance --write");
  Status status;
  Members members(json, file, status);
  Proof proof;
  proof.device = members.line("device");
  proof.device_name = members.line("device_name");
  proof.isa = members.line("isa");
  proof.driver = members.line("driver");
  proof.compiler = members.line("compiler");
  proof.commit = members.line("commit");
  proof.date = members.line("date");
  proof.threads = static_cast<int>(members.count("threads", 1 << 20));
  proof.seconds = members.number("seconds");
  proof.needed = members.count("needed", 1 << 20);
  proof.needed_of_phase = members.count("needed_of_phase", 1 << 20);
  proof.needed_of_kernel = members.count("needed_of_kernel", 1 << 20);
  for (const Json& backend : members.list("backends")) {
    BackendProof read =
        read_backend(backend, file + " backend " + std::to_string(proof.backends.size() + 1), status);
    if (proof.find(read.name, read.version) != nullptr)
      members.fail("has the backend " + json_text(read.name) + " " + json_text(read.version) + " twice");
    proof.backends.push_back(std::move(read));
  }
  members.no_others();
  if (!status) return status.error();
  return proof;
}

}  // namespace fovea::conformance
