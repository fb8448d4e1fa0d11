#pragma once
// Random expressions for tests of what evaluates them.
#include <random>
#include <string>

namespace fovea::flex {

/// Draws well-typed texts over the buffers doc (int, 1-D), grid (int, 2-D), bias (float, 1-D) and flag (bool,
/// 1-D).
class RandomExpression {
 public:
  explicit RandomExpression(uint64_t seed) : random_(seed) {}

  std::string condition(int depth) {
    const auto i = [&] { return integer(depth - 1); };
    const auto c = [&] { return condition(depth - 1); };
    if (depth <= 0) return pick({"k <= q", "doc[q] == doc[k]", "flag[k]", "q - k < 40", "h == 1"});
    switch (draw(8)) {
      case 0: return "(" + c() + " && " + c() + ")";
      case 1: return "(" + c() + " || " + c() + ")";
      case 2: return "!(" + c() + ")";
      case 3: return "(" + c() + " ? " + c() + " : " + c() + ")";
      case 4: return "(" + real(depth - 1) + pick({" < ", " >= ", " == "}) + real(depth - 1) + ")";
      case 5: return "flag[" + i() + "]";
      default: return "(" + i() + pick({" < ", " <= ", " > ", " == ", " != "}) + i() + ")";
    }
  }

  std::string integer(int depth) {
    const auto i = [&] { return integer(depth - 1); };
    if (depth <= 0)
      return pick({"k", "q", "h", "b", "qlen", "klen", "0", "3", "17", "-5", "128", "q - k", "doc[k]"});
    switch (draw(10)) {
      case 0: return "abs(" + i() + ")";
      case 1: return "min(" + i() + ", " + i() + ")";
      case 2: return "max(" + i() + ", " + i() + ")";
      case 3: return "doc[" + i() + "]";
      case 4: return "grid[" + i() + ", " + i() + "]";
      case 5: return "(" + condition(depth - 1) + " ? " + i() + " : " + i() + ")";
      case 6: return "int(" + real(depth - 1) + ")";
      case 7: return pick({"(-", "(~"}) + i() + ")";
      default:
        return "(" + i() + pick({" + ", " - ", " * ", " // ", " % ", " & ", " | ", " ^ ", " << ", " >> "}) +
               i() + ")";
    }
  }

  std::string real(int depth) {
    const auto r = [&] { return real(depth - 1); };
    if (depth <= 0) return pick({"1.5", "0.1", "-3.0", "bias[k]", "bias[q - k]", "float(k)", "float(q)"});
    switch (draw(8)) {
      case 0: return pick({"abs(", "exp2(", "log2(", "tanh(", "sqrt("}) + r() + ")";
      case 1: return "min(" + r() + ", " + r() + ")";
      case 2: return "max(" + r() + ", " + r() + ")";
      case 3: return "(" + condition(depth - 1) + " ? " + r() + " : " + r() + ")";
      case 4: return "bias[" + integer(depth - 1) + "]";
      case 5: return "float(" + integer(depth - 1) + ")";
      default: return "(" + r() + pick({" + ", " - ", " * ", " / "}) + r() + ")";
    }
  }

  int draw(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

 private:
  std::string pick(std::initializer_list<const char*> options) {
    return options.begin()[draw(static_cast<int>(options.size()))];
  }

  std::mt19937_64 random_;
};

}  // namespace fovea::flex
