#include "flex/strip.h"

#include <algorithm>
#include <cstring>

namespace fovea::flex {
namespace {

constexpr Variables kOfKeys = bit_of(Variable::k) | bit_of(Variable::score);
constexpr Variables kOfRows = bit_of(Variable::q) | bit_of(Variable::h);

template <class T>
void fill(std::byte* to, T value) {
  for (int i = 0; i < kStrip; ++i)
    std::memcpy(to + i * sizeof(T), &value, sizeof value);
}

bool is_leaf(Op op) {
  return op == Op::literal || op == Op::variable;
}

}  // namespace

StripCode::StripCode(const Tree& tree) : tree_(tree) {
  std::vector<bool> read_by_lanes(tree.nodes().size());
  read_by_lanes[static_cast<size_t>(tree.root())] = true;
  for (int i = 0; i < static_cast<int>(tree.nodes().size()); ++i) {
    const Node& n = tree.node(i);
    const Variables d = tree.depends(i);
    if ((d & kOfKeys) != 0)
      for (const int operand : {n.a, n.b, n.c})
        if (operand >= 0) read_by_lanes[static_cast<size_t>(operand)] = true;
    if (is_leaf(n.op)) continue;
    Type operand_type = tree.node(n.op == Op::select ? n.b : n.a).type;
    if (n.op == Op::read1 || n.op == Op::read2) operand_type = n.type;
    const StripOp op = {n.op, operand_type, i, n.a, n.b, n.c, n.index};
    if ((d & kOfKeys) == 0) {
      row_ops_.push_back(op);
      if ((d & kOfRows) == 0) constant_ops_.push_back(op);
    } else {
      ((d & (kOfRows | bit_of(Variable::score))) == 0 ? key_ops_ : mixed_ops_).push_back(op);
    }
  }
  for (int i = 0; i < static_cast<int>(tree.nodes().size()); ++i)
    if (read_by_lanes[static_cast<size_t>(i)] && (tree.depends(i) & kOfKeys) == 0 &&
        (tree.depends(i) & kOfRows) != 0)
      to_broadcast_.push_back(i);
}

std::byte* StripCode::key_register(std::byte* scratch, int i) const {
  return scratch + static_cast<size_t>(i) * kStripBytes;
}
std::byte* StripCode::row_register(std::byte* scratch, int i) const {
  return scratch + file_bytes() + static_cast<size_t>(i) * kStripBytes;
}

void StripCode::start_tile(const CpuKernels& kernels, std::span<const Buffer> buffers, const Rows& rows,
                           std::byte* scratch) const {
  for (int i = 0; i < static_cast<int>(tree_.nodes().size()); ++i) {
    const Node& n = tree_.node(i);
    if (!is_leaf(n.op)) continue;
    for (std::byte* to : {key_register(scratch, i), row_register(scratch, i)}) {
      if (n.op == Op::literal && n.type == Type::real) {
        fill(to, static_cast<float>(n.value));
      } else if (n.op == Op::literal) {
        fill(to, static_cast<int32_t>(n.value));
      } else {
        switch (static_cast<Variable>(n.index)) {
          case Variable::b: fill(to, rows.b); break;
          case Variable::qlen: fill(to, rows.qlen); break;
          case Variable::klen: fill(to, rows.klen); break;
          case Variable::q:
          case Variable::h: {
            const int32_t* from = n.index == static_cast<int>(Variable::q) ? rows.q : rows.h;
            fill(to, int32_t{0});
            std::memcpy(to, from, static_cast<size_t>(rows.count) * sizeof *from);
            break;
          }
          case Variable::k:
          case Variable::score: break;
        }
      }
    }
  }
  kernels.run_strip(row_ops_.data(), row_ops_.size(), buffers.data(), scratch + file_bytes());
  kernels.run_strip(constant_ops_.data(), constant_ops_.size(), buffers.data(), scratch);
}

void StripCode::start_keys(const CpuKernels& kernels, std::span<const Buffer> buffers, int32_t first,
                           std::byte* scratch) const {
  for (int i = 0; i < static_cast<int>(tree_.nodes().size()); ++i) {
    const Node& n = tree_.node(i);
    if (n.op != Op::variable || n.index != static_cast<int>(Variable::k)) continue;
    int32_t keys[kStrip];
    for (int j = 0; j < kStrip; ++j)
      keys[j] = first + j;
    std::memcpy(key_register(scratch, i), keys, sizeof keys);
  }
  kernels.run_strip(key_ops_.data(), key_ops_.size(), buffers.data(), scratch);
}

const std::byte* StripCode::run_row(const CpuKernels& kernels, std::span<const Buffer> buffers, int row,
                                    const float* score, std::byte* scratch) const {
  for (const int i : to_broadcast_) {
    int32_t bits;
    std::memcpy(&bits, row_register(scratch, i) + static_cast<size_t>(row) * sizeof bits, sizeof bits);
    int32_t* to = reinterpret_cast<int32_t*>(key_register(scratch, i));
    std::fill_n(to, kStrip, bits);
  }
  for (int i = 0; i < static_cast<int>(tree_.nodes().size()); ++i)
    if (tree_.node(i).op == Op::variable && tree_.node(i).index == static_cast<int>(Variable::score))
      std::memcpy(key_register(scratch, i), score, kStripBytes);
  kernels.run_strip(mixed_ops_.data(), mixed_ops_.size(), buffers.data(), scratch);
  return key_register(scratch, tree_.root());
}

}  // namespace fovea::flex
