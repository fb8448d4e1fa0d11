#include "engine/lora_slots.h"

#include <algorithm>

#include "base/check.h"
#include "profile/scopes.h"

namespace fovea {
namespace {

constexpr size_t kIntBytes = sizeof(int32_t), kTileBytes = sizeof(LoraTile);

/// Bytes that upload() has copied, as 32-bit integers.
Tensor ints_of(const Tensor& there) {
  return Tensor::dense(there.data, *there.device, ElementType::i32,
                       {there.elements() / static_cast<int64_t>(kIntBytes)});
}

LoraTiles tiles_of(const LoraTileList& list, const Tensor& order, const Tensor& tiles) {
  LoraTiles out;
  out.order = ints_of(order);
  out.tiles = Tensor::dense(tiles.data, *tiles.device, ElementType::i32,
                            {static_cast<int64_t>(list.tiles.size()), int64_t{kTileBytes / kIntBytes}});
  out.of_block = list.of_block;
  return out;
}

}  // namespace

int64_t LoraSlots::bytes(const LoraLayout& layout, int slots, int64_t max_rows) {
  return layout.slot_bytes() * slots + max_rows * int64_t{2 * kIntBytes};
}

LoraSlots::LoraSlots(Device& device, const LoraLayout& layout, int slots, int64_t block_rows,
                     int64_t max_rows)
    : device_(device),
      layout_(layout),
      memory_(device, static_cast<size_t>(layout.slot_bytes() * slots)),
      counters_(device, static_cast<size_t>(max_rows) * 2 * kIntBytes),
      slots_(static_cast<size_t>(slots)) {
  FOVEA_CHECK(slots > 0 && block_rows > 0);
  step_.layout = &layout_;
  step_.slots = memory_.tensor(ElementType::u8, {slots, layout_.slot_bytes()});
  step_.counters = counters_.tensor(ElementType::i32, {max_rows, 2});  // a tile has a row
  step_.block_rows = block_rows;
}

/// The adapter's slot; a new one is that which has not been used for longest.
Result<int32_t> LoraSlots::slot_of(const LoraAdapter& adapter, Stream& stream) {
  auto slot = std::ranges::find(slots_, adapter.number, &Slot::adapter);
  if (slot == slots_.end()) {
    slot = std::ranges::min_element(slots_, {}, &Slot::step);
    FOVEA_CHECK(slot->step < steps_);  // the scheduler limits the adapters of a step
    slot->adapter = 0;
    const auto at = slot - slots_.begin();
    FOVEA_CHECK(!adapter.image.empty() && static_cast<int64_t>(adapter.image.size()) <= layout_.slot_bytes());
    const profile::Op op(stream, "copy_adapter");
    FOVEA_RETURN_IF_ERROR(device_.copy_from_host(memory_.data() + at * layout_.slot_bytes(),
                                                 adapter.image.data(), adapter.image.size(), stream));
    slot->adapter = adapter.number;
    ++copies_;
  }
  slot->step = steps_;
  return static_cast<int32_t>(slot - slots_.begin());
}

Status LoraSlots::prepare(const BatchBuilder& batch, int bucket, Stream& stream) {
  const ForwardInput input = batch.input();
  ++steps_;
  used_ = input.lora != nullptr;
  rows_ = {};
  logit_rows_ = {};
  if (!used_) return {};
  if (!zeroed_) {
    const std::vector<std::byte> zeros(counters_.size());
    FOVEA_RETURN_IF_ERROR(device_.copy_from_host(counters_.data(), zeros.data(), zeros.size(), stream));
    FOVEA_RETURN_IF_ERROR(device_.synchronize(stream));
    zeroed_ = true;
  }
  const size_t given = input.token_ids.size(), rows = std::max(given, static_cast<size_t>(bucket));
  all_logits_ = input.logit_rows.size() == given;
  const auto build = [&](size_t count, std::vector<int32_t> LoraGroup::* which,
                         LoraTileList& list) -> Status {
    slot_of_row_.assign(count, -1);
    for (const LoraGroup& group : *input.lora) {
      FOVEA_TRY(slot, slot_of(*group.adapter, stream));
      for (const int32_t row : group.*which)
        slot_of_row_[static_cast<size_t>(row)] = slot;
    }
    const int fill =
        bucket > 0 ? LoraTileList::most(static_cast<int>(count), static_cast<int>(slots_.size())) : 0;
    list.build(slot_of_row_, step_.block_rows, fill);
    return {};
  };
  FOVEA_RETURN_IF_ERROR(build(rows, &LoraGroup::rows, rows_));
  if (all_logits_) return {};
  FOVEA_CHECK(bucket == 0);
  return build(input.logit_rows.size(), &LoraGroup::logit_rows, logit_rows_);
}

std::array<RowArray, 4> LoraSlots::arrays() {
  return {RowArray{rows_.order.data(), kIntBytes, rows_.order.size(), false, &there_[0]},
          RowArray{rows_.tiles.data(), kTileBytes, rows_.tiles.size(), false, &there_[1]},
          RowArray{logit_rows_.order.data(), kIntBytes, logit_rows_.order.size(), true, &there_[2]},
          RowArray{logit_rows_.tiles.data(), kTileBytes, logit_rows_.tiles.size(), true, &there_[3]}};
}

const LoraStep* LoraSlots::step() {
  if (!used_) return nullptr;
  step_.rows = tiles_of(rows_, there_[0], there_[1]);
  step_.logit_rows = all_logits_ ? step_.rows : tiles_of(logit_rows_, there_[2], there_[3]);
  return &step_;
}

}  // namespace fovea
