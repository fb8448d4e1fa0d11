#pragma once
// The kind of attention in each layer, from the various keys that config.json files use for it.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/config_fields.h"

namespace fovea {

/// The first of `keys` that the file has, else the first of `keys` (to be reported as missing).
const char* present(Fields& fields, std::initializer_list<const char*> keys);

/// What a layer attends to; `other` has no softmax attention.
enum class LayerSort : uint8_t { full, sliding, chunked, cross, other };

struct LayerPlan {
  std::vector<LayerSort> layers;
  std::map<std::string, int, std::less<>> others;  ///< their number, by the file's name for them

  explicit LayerPlan(int count) : layers(static_cast<size_t>(count), LayerSort::full) {}
  void set_other(size_t layer, const std::string& name) {
    layers[layer] = LayerSort::other;
    ++others[name];
  }
};

/// The window that sliding layers have; 0 = none.
int read_window(Fields& fields);

/// Each layer's sort, from the keys present in the file; `model_type` decides the defaults.
LayerPlan read_layer_plan(Fields& fields, std::string_view model_type, int layers, int window);

/// The same, using only keys that identify layers without softmax attention.
LayerPlan read_linear_plan(Fields& fields, int layers);

}  // namespace fovea
