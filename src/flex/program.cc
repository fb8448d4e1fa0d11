#include "flex/program.h"

#include <utility>

#include "base/digest.h"
#include "flex/parse.h"

namespace fovea::flex {

uint64_t Program::hash() const {
  Digest digest;
  digest.add(buffers.size());
  for (const BufferType& buffer : buffers)
    digest.add(buffer.element).add(buffer.dims);
  for (const auto* tree : {&mask, &score})
    digest.add(tree->has_value()).add(tree->has_value() ? (*tree)->hash() : uint64_t{0});
  return digest.value();
}

Result<Program> make_program(std::string_view mask, std::string_view score, std::vector<BufferType> buffers) {
  Program program;
  program.buffers = std::move(buffers);
  FOVEA_RETURN_IF_ERROR(check_buffers(program.buffers));
  if (!mask.empty()) {
    FOVEA_TRY(tree, parse(Role::mask, mask, program.buffers));
    if (!tree.is_literal(tree.root()) || tree.node(tree.root()).value == 0) program.mask = std::move(tree);
  }
  if (!score.empty()) {
    FOVEA_TRY(tree, parse(Role::score, score, program.buffers));
    const Node& root = tree.node(tree.root());
    const bool same = root.op == Op::variable && root.index == static_cast<int>(Variable::score);
    if (!same) program.score = std::move(tree);
  }
  return program;
}

}  // namespace fovea::flex
