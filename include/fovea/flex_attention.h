#pragma once
// Attention whose mask and score are expressions (docs/flex-attention.md): for each query row q and key k of
// a sequence,
//   s = score(scale * q.k),  O = sum over the keys with mask of softmax(s) v.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention_spec.h"
#include "fovea/attention_step.h"
#include "fovea/result.h"

namespace fovea {

class Stream;

/// Elements of a buffer: bytes (not 0 = true), int32, fp32.
enum class FlexElement : uint8_t { boolean, integer, real };

/// A named array that expressions read, in the memory of the stream's device. Indices are clamped to it.
struct FlexBuffer {
  std::string_view name;
  FlexElement element = FlexElement::integer;
  const void* data = nullptr;
  int dims = 1;            ///< 1: `columns` elements; 2: [rows, columns]
  int32_t rows = 1;        ///< at least 1
  int32_t columns = 0;     ///< at least 1
  int64_t row_stride = 0;  ///< elements; 0 = columns
};

namespace flex {
struct Program;
}

/// A parsed mask and score. Cheap to copy; may be used by several threads.
class FlexProgram {
 public:
  /// An empty mask lets every key be seen, an empty score leaves it as it is. Reads only names, elements
  /// and dims of the buffers. Errors: "mask, column 7: expected ..., found ..."; an invalid name of a
  /// buffer.
  static Result<FlexProgram> parse(std::string_view mask, std::string_view score,
                                   std::span<const FlexBuffer> buffers = {});

  /// Equal for programs that do the same: spaces, names of buffers and constants that fold don't count.
  uint64_t hash() const;
  const flex::Program& program() const { return *program_; }

 private:
  explicit FlexProgram(std::shared_ptr<const flex::Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const flex::Program> program_;
};

/// How many blocks of query rows and keys the mask leaves empty, partial and full, over all sequences and
/// heads.
struct FlexBlocks {
  int64_t empty = 0, partial = 0, full = 0;
};

/// One layer. `spec` has the heads, head sizes, scale and dtypes (a KV cache of fp32, fp16 or bf16); its
/// mask, soft cap, ALiBi and sinks are not used and must be off (causal too), because the program says it
/// all. `meta` and `args` are as for AttentionBackend, pages included. A row that sees no key gives O = 0,
/// LSE = -inf; a score of -inf hides its key. Blocks in which the mask is false everywhere are not read;
/// where it is true everywhere, it is not evaluated. The bits of a row depend on its own sequence only.
/// `buffers` are those that the program was parsed with, in any order. `blocks` (may be null) receives
/// counts. Errors: a spec, step or buffer that does not fit; on a GPU see docs/flex-attention.md.
Status flex_attention(const FlexProgram& program, std::span<const FlexBuffer> buffers,
                      const AttentionSpec& spec, const BatchMeta& meta, const AttentionArgs& args,
                      Stream& stream, FlexBlocks* blocks = nullptr);

}  // namespace fovea
