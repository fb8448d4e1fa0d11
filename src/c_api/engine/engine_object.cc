#include "c_api/engine/engine_object.h"

#include "base/sized_struct.h"
#include "c_api/engine/options.h"
#include "c_api/engine/returned.h"
#include "c_api/registry.h"
#include "model/config.h"
#include "model/decoder_prompt.h"

namespace fovea::c_api {

Result<std::shared_ptr<EngineObject>> EngineObject::create(const char* options) {
  FOVEA_TRY(config, engine_options(options));
  auto object = std::make_shared<EngineObject>();
  object->backends_ = loaded_backends();
  config.registry = &object->backends_;
  FOVEA_TRY(engine, Engine::create(config));
  object->engine_ = std::move(engine);
  FOVEA_TRY(model, load_model_config(object->engine_->info().model_dir, config.generation_config));
  if (model.kind == ModelKind::encoder_decoder) object->decoder_prompt_ = default_decoder_prompt(model);
  return object;
}

Result<GenerateRequest> EngineObject::to_request(const fovea_request& given) const {
  GenerateRequest request;
  FOVEA_TRY(ids, given_array(given.prompt_ids, given.num_prompt_ids, "request->prompt_ids"));
  FOVEA_TRY(encoder_ids, given_array(given.encoder_ids, given.num_encoder_ids, "request->encoder_ids"));
  FOVEA_TRY(features,
            given_array(given.encoder_features, given.num_encoder_features, "request->encoder_features"));
  if (given.prompt != nullptr && !ids.empty())
    return invalid("request has both prompt and prompt_ids; give one of them");
  request.encoder_ids.assign(encoder_ids.begin(), encoder_ids.end());
  request.encoder_features.assign(features.begin(), features.end());
  if (given.prompt != nullptr) {
    const int64_t bytes = given.prompt_bytes == 0 ? -1 : given.prompt_bytes;
    FOVEA_TRY(text, given_text(given.prompt, bytes, "request->prompt"));
    FOVEA_TRY(tokens, engine_->tokenize(text, given.raw_text == 0));
    request.prompt_ids = std::move(tokens);
  } else if (!ids.empty()) {
    request.prompt_ids.assign(ids.begin(), ids.end());
  } else if (decoder_prompt_) {
    if (!*decoder_prompt_) return decoder_prompt_->error();
    request.prompt_ids = **decoder_prompt_;
  }
  FOVEA_TRY(sampling, sampling_of(given.sampling, engine_->default_sampling(), &request.prompt_logprobs));
  request.sampling = std::move(sampling);
  request.priority = given.priority;
  request.client = given_or_empty(given.client);
  request.lora = given_or_empty(given.lora);
  return request;
}

Result<uint64_t> EngineObject::submit(const fovea_request* request) {
  FOVEA_TRY(given, read_struct(request, fovea_request{}, kRequestSize3, "fovea_request"));
  FOVEA_TRY(made, to_request(given));
  const int answers = made.sampling.n;
  const uint64_t tag = given.tag;
  queue_->expect(answers);
  auto id = engine_->submit(std::move(made),
                            [queue = queue_, tag](const RequestOutput& output) { queue->push(output, tag); });
  if (!id) {
    queue_->unexpect(answers);
    return std::move(id).error();
  }
  queue_->note_id(*id);
  return *id;
}

Status EngineObject::check(const fovea_request* request) const {
  FOVEA_TRY(given, read_struct(request, fovea_request{}, kRequestSize3, "fovea_request"));
  FOVEA_TRY(made, to_request(given));
  return engine_->check(made);
}

Status EngineObject::cancel(uint64_t id) {
  if (!queue_->has_id(id))
    return not_found("id is " + std::to_string(id) + "; fovea_engine_submit() did not return it");
  engine_->cancel(id);
  return {};
}

}  // namespace fovea::c_api
