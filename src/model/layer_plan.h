#pragma once
// Which of a model's layers attend to what, by the keys that config.json files have for it.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/config_fields.h"

namespace fovea {

/// The first of `keys` that the file has, else the first of them (which is then the one that is missing).
const char* present(Fields& fields, std::initializer_list<const char*> keys);

/// What a layer attends to; `other` has no softmax attention.
enum class LayerSort : uint8_t { full, sliding, chunked, cross, other };

struct LayerPlan {
  std::vector<LayerSort> layers;
  std::map<std::string, int, std::less<>> others;  ///< how many, by the name that the file has for them

  explicit LayerPlan(int count) : layers(static_cast<size_t>(count), LayerSort::full) {}
  void set_other(size_t layer, const std::string& name) {
    layers[layer] = LayerSort::other;
    ++others[name];
  }
};

/// The window that sliding layers have; 0 = none.
int read_window(Fields& fields);

/// Every layer's sort, from whichever keys the file has; `model_type` decides what absent keys mean.
LayerPlan read_layer_plan(Fields& fields, std::string_view model_type, int layers, int window);

/// The same, looking only for keys that tell layers without softmax attention from the others.
LayerPlan read_linear_plan(Fields& fields, int layers);

}  // namespace fovea
