// An arbitrary proof file: an accepted one is unchanged after it is written and read again.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "conformance/proof.h"
#include "fovea/result.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fovea::conformance;
  const auto proof = parse_proof({reinterpret_cast<const char*>(data), size}, "proof.json");
  if (!proof) {
    const std::string& message = proof.error().message;
    if (message.empty() || message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  const std::string text = to_json(*proof);
  const auto again = parse_proof(text, "again.json");
  if (!again || to_json(*again) != text) std::abort();
  return 0;
}
