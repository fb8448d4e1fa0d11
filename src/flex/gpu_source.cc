#include "flex/gpu_source.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <span>

#include "base/embedded_file.h"

namespace fovea::flex {

std::span<const EmbeddedFile> embedded_files();

namespace {

std::string_view file(std::string_view name) {
  for (const EmbeddedFile& f : embedded_files())
    if (f.name == name) return f.text;
  return {};
}

std::string_view c_type(Type type) {
  return type == Type::boolean ? "bool" : type == Type::integer ? "int" : "float";
}

/// What the expressions call. Integers wrap, as unsigned arithmetic does.
constexpr std::string_view kPrelude = R"(
using flex_gpu::Args;
using flex_gpu::Buffer;
using flex_gpu::Range;
using flex_gpu::Seq;
using flex_gpu::Tile;
__device__ __forceinline__ int fx_clamp(int i, int size) { return i < 0 ? 0 : i < size ? i : size - 1; }
template <class T>
__device__ __forceinline__ T fx_read1(const Buffer& b, int i) {
  return __ldg(static_cast<const T*>(b.data) + fx_clamp(i, b.columns));
}
template <class T>
__device__ __forceinline__ T fx_read2(const Buffer& b, int i, int j) {
  return __ldg(static_cast<const T*>(b.data) + fx_clamp(i, b.rows) * b.stride + fx_clamp(j, b.columns));
}
__device__ __forceinline__ int fx_add(int a, int b) { return int(unsigned(a) + unsigned(b)); }
__device__ __forceinline__ int fx_sub(int a, int b) { return int(unsigned(a) - unsigned(b)); }
__device__ __forceinline__ int fx_mul(int a, int b) { return int(unsigned(a) * unsigned(b)); }
__device__ __forceinline__ int fx_floor_div(int a, int b) {
  if (b == 0) return 0;
  if (b == -1) return fx_sub(0, a);
  const int q = a / b;
  return q - (q * b != a && (a < 0) != (b < 0));
}
__device__ __forceinline__ int fx_mod(int a, int b) { return b == 0 ? 0 : fx_sub(a, fx_mul(fx_floor_div(a, b), b)); }
__device__ __forceinline__ int fx_int(float x) {
  return x != x ? 0 : x >= 2147483648.0f ? 2147483647 : x < -2147483648.0f ? -2147483647 - 1 : int(x);
}
)";

/// One node as an expression over the names n0, n1, ... of earlier ones.
std::string operation(const Tree& tree, const Node& n, const std::vector<BufferType>& buffers) {
  const auto name = [](int i) { return "n" + std::to_string(i); };
  const std::string a = name(n.a), b = name(n.b), c = name(n.c);
  const bool real = n.a >= 0 && tree.node(n.a).type == Type::real;
  const auto infix = [&](const char* symbol) { return a + " " + symbol + " " + b; };
  const auto call = [&](const char* function) {
    return std::string(function) + "(" + a + (n.b >= 0 ? ", " + b : "") + ")";
  };
  switch (n.op) {
    case Op::literal: {
      char text[64];
      if (n.type == Type::boolean) return n.value != 0 ? "true" : "false";
      if (n.type == Type::integer) {
        std::snprintf(text, sizeof text, "int(%uu)", static_cast<uint32_t>(static_cast<int32_t>(n.value)));
        return text;
      }
      const auto value = static_cast<float>(n.value);
      uint32_t bits;
      static_assert(sizeof bits == sizeof value);
      std::memcpy(&bits, &value, sizeof bits);
      std::snprintf(text, sizeof text, "__uint_as_float(0x%08xu)", bits);
      return text;
    }
    case Op::variable: return std::string(to_string(static_cast<Variable>(n.index)));
    case Op::read1:
    case Op::read2: {
      const Type element = buffers[static_cast<size_t>(n.index)].element;
      const std::string type = element == Type::boolean ? "unsigned char" : std::string(c_type(element));
      return (n.op == Op::read1 ? "fx_read1<" : "fx_read2<") + type + ">(args.buffers[" +
             std::to_string(n.index) + "], " + a + (n.op == Op::read1 ? ")" : ", " + b + ")") +
             (element == Type::boolean ? " != 0" : "");
    }
    case Op::to_integer: return real ? call("fx_int") : "int(" + a + ")";
    case Op::to_real: return "float(" + a + ")";
    case Op::negate: return real ? "-" + a : "fx_sub(0, " + a + ")";
    case Op::bit_not: return "~" + a;
    case Op::logical_not: return "!" + a;
    case Op::absolute: return real ? call("fabsf") : a + " < 0 ? fx_sub(0, " + a + ") : " + a;
    case Op::exp2: return call("exp2f");
    case Op::log2: return call("log2f");
    case Op::tanh: return call("tanhf");
    case Op::sqrt: return call("sqrtf");
    case Op::add: return real ? infix("+") : call("fx_add");
    case Op::subtract: return real ? infix("-") : call("fx_sub");
    case Op::multiply: return real ? infix("*") : call("fx_mul");
    case Op::divide: return infix("/");
    case Op::floor_divide: return call("fx_floor_div");
    case Op::modulo: return call("fx_mod");
    case Op::shift_left: return "int(unsigned(" + a + ") << (" + b + " & 31))";
    case Op::shift_right: return a + " >> (" + b + " & 31)";
    case Op::bit_and: return infix("&");
    case Op::bit_or: return infix("|");
    case Op::bit_xor: return infix("^");
    case Op::minimum: return b + " < " + a + " ? " + b + " : " + a;
    case Op::maximum: return a + " < " + b + " ? " + b + " : " + a;
    case Op::less: return infix("<");
    case Op::less_equal: return infix("<=");
    case Op::equal: return infix("==");
    case Op::not_equal: return infix("!=");
    case Op::logical_and: return infix("&");  // both sides are evaluated
    case Op::logical_or: return infix("|");
    case Op::select: return a + " ? " + b + " : " + c;
  }
  return {};
}

std::string function(const Tree& tree, const std::vector<BufferType>& buffers, std::string_view head) {
  std::string text(head);
  text += " {\n";
  for (size_t i = 0; i < tree.nodes().size(); ++i) {
    const Node& n = tree.nodes()[i];
    text += "  const " + std::string(c_type(n.type)) + " n" + std::to_string(i) + " = " +
            operation(tree, n, buffers) + ";\n";
  }
  return text + "  return n" + std::to_string(tree.root()) + ";\n}\n";
}

int round_up_16(int n) {
  return (n + 15) / 16 * 16;
}

}  // namespace

Status check_gpu(const Program& program, const GpuVariant& variant) {
  if (variant.head_dim > kGpuMaxHeadDim || variant.v_head_dim > kGpuMaxHeadDim)
    return unsupported("flex_attention on a GPU takes head sizes up to " + std::to_string(kGpuMaxHeadDim) +
                       ", not " + std::to_string(std::max(variant.head_dim, variant.v_head_dim)) +
                       ": run it on the CPU");
  if (program.buffers.size() > static_cast<size_t>(kGpuMaxBuffers))
    return unsupported("flex_attention on a GPU takes up to " + std::to_string(kGpuMaxBuffers) +
                       " buffers, not " + std::to_string(program.buffers.size()) +
                       ": put several into the rows of one");
  return {};
}

GpuLaunch gpu_launch(const GpuVariant& v) {
  if (v.dtype == DType::f32) {
    constexpr size_t kStep = 32;
    const auto d = static_cast<size_t>(v.head_dim), dv = static_cast<size_t>(v.v_head_dim);
    return {256, 4 * (kGpuRows * d + kStep * (d + 1) + kStep * dv + kGpuRows * kStep)};
  }
  const size_t d = static_cast<size_t>(round_up_16(v.head_dim)) + 8,
               dv = static_cast<size_t>(round_up_16(v.v_head_dim)) + 8;
  return {128, 2 * (kGpuRows * d + size_t{2} * kGpuKeys * (d + dv))};
}

std::string gpu_source(const Program& program, const GpuVariant& v) {
  std::string text;
  const auto define = [&text](const char* name, int value) {
    text += "#define " + std::string(name) + " " + std::to_string(value) + "\n";
  };
  define("FLEX_TYPE", v.dtype == DType::f32 ? 0 : v.dtype == DType::f16 ? 1 : 2);
  define("FLEX_D", v.head_dim);
  define("FLEX_DV", v.v_head_dim);
  define("FLEX_ALIGNED", v.aligned ? 1 : 0);
  define("FLEX_MASK", program.mask ? 1 : 0);
  define("FLEX_SCORE", program.score ? 1 : 0);
  define("FLEX_PRESCALE", program.score || !v.positive_scale ? 1 : 0);
  text += file("gpu_args.h");
  text += kPrelude;
  constexpr std::string_view kParameters = "int b, int h, int q, int k, int qlen, int klen)";
  if (program.mask)
    text +=
        function(*program.mask, program.buffers,
                 "__device__ __forceinline__ bool flex_mask(const Args& args, " + std::string(kParameters));
  if (program.score)
    text += function(
        *program.score, program.buffers,
        "__device__ __forceinline__ float flex_score(const Args& args, float s, " + std::string(kParameters));
  text += file("flex_kernel.cuh");
  return text;
}

}  // namespace fovea::flex
