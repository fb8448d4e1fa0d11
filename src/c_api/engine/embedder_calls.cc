#include <cstring>
#include <vector>

#include "c_api/engine/handles.h"
#include "c_api/engine/info_json.h"
#include "c_api/engine/options.h"
#include "c_api/engine/returned.h"
#include "c_api/errors.h"
#include "c_api/registry.h"
#include "fovea/attention_backend.h"
#include "fovea/c_engine.h"
#include "fovea/embed.h"

namespace fovea::c_api {
namespace {

struct EmbedderObject {
  BackendRegistry backends;  ///< as of the embedder's creation
  std::unique_ptr<Embedder> embedder;
};

using Embedders = Handles<fovea_embedder, EmbedderObject>;

/// Calls a function of the live object inside guard().
template <class F>
fovea_status of_embedder(const char* function, fovea_embedder* embedder, const F& call) {
  return guard(function, [&]() -> Status {
    FOVEA_TRY(object, Embedders::find(embedder, "embedder"));
    return call(*object->embedder);
  });
}

Result<std::vector<std::vector<int32_t>>> to_inputs(const int32_t* ids, const size_t* lengths, size_t count) {
  FOVEA_TRY(sizes, given_array(lengths, count, "lengths"));
  std::vector<std::vector<int32_t>> inputs;
  for (const size_t length : sizes) {
    FOVEA_TRY(input, given_array(ids, length, "ids"));
    inputs.emplace_back(input.begin(), input.end());
    if (ids != nullptr) ids += length;
  }
  return inputs;
}

}  // namespace
}  // namespace fovea::c_api

using fovea::Status;
using fovea::c_api::guard;

fovea_status fovea_embedder_create(const char* options, fovea_embedder** out) {
  return guard("fovea_embedder_create", [&]() -> Status {
    if (out == nullptr) return fovea::invalid("out is null");
    *out = nullptr;
    FOVEA_TRY(config, fovea::c_api::embed_options(options));
    auto object = std::make_shared<fovea::c_api::EmbedderObject>();
    object->backends = fovea::c_api::loaded_backends();
    config.registry = &object->backends;
    FOVEA_TRY(embedder, fovea::Embedder::create(config));
    object->embedder = std::move(embedder);
    *out = fovea::c_api::Embedders::add(std::move(object));
    return {};
  });
}

void fovea_embedder_destroy(fovea_embedder* embedder) {
  fovea::c_api::Embedders::remove(embedder);
}

fovea_status fovea_embedder_info_json(fovea_embedder* embedder, char** json) {
  return fovea::c_api::of_embedder("fovea_embedder_info_json", embedder, [&](fovea::Embedder& of) -> Status {
    if (json == nullptr) return fovea::invalid("json is null");
    *json = fovea::c_api::returned_text(fovea::c_api::info_json(of.info()));
    return {};
  });
}

fovea_status fovea_embedder_tokenize(fovea_embedder* embedder, const char* text, int64_t bytes,
                                     int32_t truncate, int32_t** ids, size_t* count) {
  return fovea::c_api::of_embedder("fovea_embedder_tokenize", embedder, [&](fovea::Embedder& of) -> Status {
    if (ids == nullptr) return fovea::invalid("ids is null");
    if (count == nullptr) return fovea::invalid("count is null");
    *ids = nullptr;
    *count = 0;
    FOVEA_TRY(given, fovea::c_api::given_text(text, bytes, "text"));
    FOVEA_TRY(tokens, of.tokenize(given, truncate != 0));
    *ids = fovea::c_api::returned_ids(tokens);
    *count = tokens.size();
    return {};
  });
}

fovea_status fovea_embedder_embed(fovea_embedder* embedder, const int32_t* ids, const size_t* lengths,
                                  size_t count, float* out, size_t out_floats) {
  return fovea::c_api::of_embedder("fovea_embedder_embed", embedder, [&](fovea::Embedder& of) -> Status {
    FOVEA_TRY(inputs, fovea::c_api::to_inputs(ids, lengths, count));
    const auto dimensions = static_cast<size_t>(of.info().dimensions);
    if (out == nullptr && count != 0) return fovea::invalid("out is null");
    if (out_floats != count * dimensions)
      return fovea::invalid("out_floats is " + std::to_string(out_floats) +
                            "; it must be count * dimensions = " + std::to_string(count) + " * " +
                            std::to_string(dimensions));
    FOVEA_TRY(vectors, of.embed(inputs));
    for (const std::vector<float>& vector : vectors) {
      std::memcpy(out, vector.data(), dimensions * sizeof(float));
      out += dimensions;
    }
    return {};
  });
}
