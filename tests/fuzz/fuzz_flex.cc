// Expressions of FlexAttention: the first byte says mask or score, the rest is the text. What parses prints
// to a text with the same meaning, and its bounds contain its values.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "flex/evaluate.h"
#include "flex/interval.h"
#include "flex/parse.h"

namespace {

using namespace fovea::flex;

constexpr int32_t kDoc[] = {0, 0, 1, 1, 1, 2, 9, -4};
constexpr int32_t kGrid[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
constexpr float kBias[] = {0.5f, -1.0f, 3e38f, 1e-3f};
constexpr uint8_t kFlag[] = {1, 0, 0, 1};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1 || size > 2048) return 0;
  const Role role = data[0] % 2 == 0 ? Role::mask : Role::score;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::vector<BufferType> types = {{"doc", Type::integer, 1},
                                         {"grid", Type::integer, 2},
                                         {"bias", Type::real, 1},
                                         {"flag", Type::boolean, 1}};
  const std::vector<Buffer> buffers = {{kDoc, 1, 8, 8}, {kGrid, 3, 3, 3}, {kBias, 1, 4, 4}, {kFlag, 1, 4, 4}};
  const auto tree = parse(role, text, types);
  if (!tree) {
    if (tree.error().message.empty() || tree.error().message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  const std::string printed = tree->text(types);
  const auto again = parse(role, printed, types);
  if (again && again->hash() != tree->hash()) std::abort();
  const Analysis analysis(*tree, types, buffers);
  Analysis::Scratch scratch = analysis.scratch();
  const Interval bounds = analysis.bounds({{0, 1}, {0, 1}, {3, 6}, {0, 4}, {8, 8}, {8, 8}}, scratch);
  for (int i = 0; i < 2 * 2 * 4 * 5; ++i) {
    const Point point = {i % 2, i / 2 % 2, 3 + i / 4 % 4, i / 16, 8, 8, i * 0.5 - 7};
    for (const double x :
         {evaluate<double>(*tree, types, buffers, point), evaluate<float>(*tree, types, buffers, point)})
      if (std::isnan(x) ? !bounds.nan : x < bounds.lo || x > bounds.hi) std::abort();
  }
  return 0;
}
