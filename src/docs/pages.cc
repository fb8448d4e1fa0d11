#include "docs/pages.h"

#include <algorithm>

#include "conformance/prove.h"
#include "docs/devices.h"
#include "docs/embedded.h"
#include "docs/flag_tables.h"
#include "docs/markdown.h"
#include "docs/marks.h"
#include "docs/peers.h"
#include "docs/priority_tables.h"
#include "docs/refusals.h"
#include "docs/template.h"
#include "server/openai/field_table.h"
#include "server/openai/request.h"

namespace fovea::docs {
namespace {

std::string generated_note(std::string_view file) {
  return "*`fovea docs` writes this page from the tables that selection reads and from the files in "
         "`proof/`; "
         "change those, or [its prose](templates/" +
         std::string(file) + "), not this file.*";
}

Result<Page> fill(std::string_view file, Values values) {
  values["generated"] = generated_note(file);
  FOVEA_TRY(text, fill_template("docs/templates/" + std::string(file), embedded_text(file), values));
  return Page{file, std::move(text)};
}

Result<Page> backends_page(const BackendRegistry& backends, Proofs proofs) {
  Values values = {
      {"table:built", built_table(backends)},
      {"table:absent", absent_table(backends)},
      {"table:standard", standard_table(backends, proofs)},
      {"table:mla_decode", mla_decode_table(backends, proofs)},
      {"table:mla_prefill", mla_prefill_table()},
      {"table:sglang", sglang_table(backends, proofs)},
      {"table:mini_sglang", mini_sglang_table(backends)},
      {"table:union", union_table(backends, proofs)},
      {"table:columns", column_table()},
      {"list:partners", partner_list(backends)},
      {"table:proofs", proof_table(backends, proofs)},
      {"table:kernels", kernel_table(proofs)},
      {"value:needed", std::to_string(conformance::cases_needed(false))},
      {"value:needed_of_phase", std::to_string(conformance::cases_needed_of_phase(false))},
      {"value:needed_of_kernel", std::to_string(conformance::cases_needed_of_kernel(false))},
      {"table:priority_standard", priority_table(false)},
      {"table:priority_mla", priority_table(true)},
      {"table:priority_peers", documented_table("orders")},
      {"table:sglang_mha", documented_table("sglang_mha")},
      {"table:sglang_mla", documented_table("sglang_mla")},
      {"table:mini_sglang_code", documented_table("mini_sglang")},
      {"table:keys", key_table()},
      {"table:devices", device_table()},
  };
  FOVEA_RETURN_IF_ERROR(add_refusals(values));
  return fill("attention_backends.md", std::move(values));
}

std::string code_list(std::span<const std::string_view> names) {
  std::vector<std::string> words;
  for (const std::string_view name : names)
    words.push_back(code(name));
  return join(words);
}

/// The space-separated JSON values of `text`, as code.
std::string values_off(std::string_view text) {
  std::vector<std::string> words;
  for (size_t end = 0; !text.empty(); text.remove_prefix(std::min(end + 1, text.size()))) {
    end = std::min(text.find(' '), text.size());
    words.push_back(code(text.substr(0, end)));
  }
  return join(words);
}

Result<Page> fields_page() {
  using Kind = openai::FieldRule::Kind;
  Table read({"path", "fields"}), no_effect({"field", "of", "why"}),
      refused({"field", "of", "instead", "accepted too"});
  for (const openai::ReadFields& fields : openai::read_fields())
    read.row({code(fields.path), code_list(fields.names)});
  for (const openai::FieldRule& rule : openai::field_rules()) {
    if (rule.kind == Kind::no_effect)
      no_effect.row({code(rule.name), std::string(rule.whose), std::string(rule.note)});
    else
      refused.row({code(rule.name), std::string(rule.whose), std::string(rule.note), values_off(rule.off)});
  }
  return fill("request_fields.md", {{"table:read", read.text()},
                                    {"table:no_effect", no_effect.text()},
                                    {"table:refused", refused.text()},
                                    {"list:message", code_list(openai::message_fields())},
                                    {"list:part", code_list(openai::part_fields())},
                                    {"list:call", code_list(openai::call_fields())},
                                    {"list:function", code_list(openai::function_fields())}});
}

Result<Page> coming_from_page(const BackendRegistry& backends) {
  FOVEA_TRY(names, name_table(backends));
  return fill("coming_from.md", {{"table:names", names},
                                 {"table:environment", environment_table()},
                                 {"table:flags_sglang", flag_table(Peer::sglang)},
                                 {"table:flags_vllm", flag_table(Peer::vllm)},
                                 {"table:flags_mini_sglang", flag_table(Peer::mini_sglang)}});
}

/// Line `number`, from 1, of `text`; "nothing" past its end.
std::string line_of(std::string_view text, int64_t number) {
  for (; number > 1 && !text.empty(); --number) {
    const size_t end = text.find('\n');
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  if (text.empty()) return "nothing";
  constexpr size_t kLongest = 80;
  const std::string_view line = text.substr(0, std::min(text.find('\n'), kLongest));
  return "'" + std::string(line) + "'";
}

}  // namespace

Result<std::vector<Page>> render_pages(const BackendRegistry& backends, Proofs proofs) {
  FOVEA_RETURN_IF_ERROR(check_proofs(proofs, backends));
  FOVEA_TRY(first, backends_page(backends, proofs));
  FOVEA_TRY(second, coming_from_page(backends));
  FOVEA_TRY(third, fields_page());
  return std::vector<Page>{std::move(first), std::move(second), std::move(third)};
}

Status check_page(const std::string& file, std::string_view have, const Page& page) {
  if (have == page.text) return {};
  const auto [a, b] = std::ranges::mismatch(have, page.text);
  const int64_t line = 1 + std::count(have.begin(), a, '\n');
  return {Error{ErrorCode::internal, file + ":" + std::to_string(line) + ": the page has " +
                                         line_of(have, line) + " where fovea docs writes " +
                                         line_of(page.text, line) + "; run fovea docs and commit the pages"}};
}

}  // namespace fovea::docs
