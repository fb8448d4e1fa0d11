#include "base/sized_struct.h"
#include "c_api/engine/engine_object.h"
#include "c_api/engine/handles.h"
#include "c_api/engine/info_json.h"
#include "c_api/engine/returned.h"
#include "c_api/errors.h"
#include "files/model_folder.h"
#include "model/config.h"

namespace fovea::c_api {
namespace {

using Engines = Handles<fovea_engine, EngineObject>;

/// Calls a function of the live object inside guard().
template <class F>
fovea_status of_engine(const char* function, fovea_engine* engine, const F& call) {
  return guard(function, [&]() -> Status {
    FOVEA_TRY(object, Engines::find(engine, "engine"));
    return call(*object);
  });
}

template <class T>
Status cleared(T* out, const char* name) {
  if (out == nullptr) return invalid(std::string(name) + " is null");
  *out = {};
  return {};
}

int32_t kind_code(ModelKind kind) {
  switch (kind) {
    case ModelKind::decoder: return FOVEA_MODEL_DECODER;
    case ModelKind::encoder: return FOVEA_MODEL_ENCODER;
    case ModelKind::encoder_decoder: return FOVEA_MODEL_ENCODER_DECODER;
  }
  return FOVEA_MODEL_DECODER;
}

Result<ChatRequest> to_chat(const fovea_chat* given) {
  FOVEA_TRY(chat, read_struct(given, fovea_chat{}, kChatSize3, "fovea_chat"));
  if (chat.messages == nullptr) return invalid("chat->messages is null");
  ChatRequest request;
  request.messages = chat.messages;
  request.tools = given_or_empty(chat.tools);
  request.documents = given_or_empty(chat.documents);
  request.template_kwargs = given_or_empty(chat.template_kwargs);
  request.template_name = given_or_empty(chat.template_name);
  request.add_generation_prompt = chat.no_generation_prompt == 0;
  request.continue_final_message = chat.continue_final_message != 0;
  return request;
}

}  // namespace
}  // namespace fovea::c_api

using namespace fovea;         // NOLINT(google-build-using-namespace): the functions are C's
using namespace fovea::c_api;  // NOLINT(google-build-using-namespace)

fovea_status fovea_model_kind(const char* model, int32_t* kind) {
  return guard("fovea_model_kind", [&]() -> Status {
    if (model == nullptr) return invalid("model is null");
    FOVEA_RETURN_IF_ERROR(cleared(kind, "kind"));
    FOVEA_TRY(dir, resolve_model_dir(model));
    FOVEA_TRY(config, load_model_config(dir, "none"));
    *kind = kind_code(config.kind);
    return {};
  });
}

void fovea_free(void* memory) {
  std::free(memory);
}

fovea_status fovea_engine_create(const char* options, fovea_engine** out) {
  return guard("fovea_engine_create", [&]() -> Status {
    FOVEA_RETURN_IF_ERROR(cleared(out, "out"));
    FOVEA_TRY(object, EngineObject::create(options));
    *out = Engines::add(std::move(object));
    return {};
  });
}

void fovea_engine_destroy(fovea_engine* engine) {
  // A call that is inside the engine keeps it until it returns; the queue's waits end here.
  if (const auto object = Engines::remove(engine)) object->queue().close();
}

fovea_status fovea_engine_info_json(fovea_engine* engine, char** json) {
  return of_engine("fovea_engine_info_json", engine, [&](EngineObject& object) -> Status {
    FOVEA_RETURN_IF_ERROR(cleared(json, "json"));
    *json = returned_text(info_json(object.engine()));
    return {};
  });
}

fovea_status fovea_engine_stats_json(fovea_engine* engine, char** json) {
  return of_engine("fovea_engine_stats_json", engine, [&](EngineObject& object) -> Status {
    FOVEA_RETURN_IF_ERROR(cleared(json, "json"));
    *json = returned_text(stats_json(object.engine().stats()));
    return {};
  });
}

fovea_status fovea_engine_load_lora(fovea_engine* engine, const char* name, const char* path) {
  return of_engine("fovea_engine_load_lora", engine, [&](EngineObject& object) -> Status {
    if (name == nullptr) return invalid("name is null");
    if (path == nullptr) return invalid("path is null");
    return object.engine().load_lora({name, path});
  });
}

fovea_status fovea_engine_unload_lora(fovea_engine* engine, const char* name) {
  return of_engine("fovea_engine_unload_lora", engine, [&](EngineObject& object) -> Status {
    if (name == nullptr) return invalid("name is null");
    return object.engine().unload_lora(name);
  });
}

fovea_status fovea_engine_tokenize(fovea_engine* engine, const char* text, int64_t bytes,
                                   int32_t add_special_tokens, int32_t** ids, size_t* count) {
  return of_engine("fovea_engine_tokenize", engine, [&](EngineObject& object) -> Status {
    FOVEA_RETURN_IF_ERROR(cleared(ids, "ids"));
    FOVEA_RETURN_IF_ERROR(cleared(count, "count"));
    FOVEA_TRY(given, given_text(text, bytes, "text"));
    FOVEA_TRY(tokens, object.engine().tokenize(given, add_special_tokens != 0));
    *ids = returned_ids(tokens);
    *count = tokens.size();
    return {};
  });
}

fovea_status fovea_engine_detokenize(fovea_engine* engine, const int32_t* ids, size_t count,
                                     int32_t skip_special_tokens, char** text, size_t* bytes) {
  return of_engine("fovea_engine_detokenize", engine, [&](EngineObject& object) -> Status {
    FOVEA_RETURN_IF_ERROR(cleared(text, "text"));
    FOVEA_RETURN_IF_ERROR(cleared(bytes, "bytes"));
    FOVEA_TRY(given, given_array(ids, count, "ids"));
    const std::string made =
        object.engine().detokenize({given.begin(), given.end()}, skip_special_tokens != 0);
    *text = returned_text(made);
    *bytes = made.size();
    return {};
  });
}

fovea_status fovea_engine_token_bytes(fovea_engine* engine, int32_t id, char** text, size_t* bytes) {
  return of_engine("fovea_engine_token_bytes", engine, [&](EngineObject& object) -> Status {
    FOVEA_RETURN_IF_ERROR(cleared(text, "text"));
    FOVEA_RETURN_IF_ERROR(cleared(bytes, "bytes"));
    const std::string made = object.engine().token_bytes(id);
    *text = returned_text(made);
    *bytes = made.size();
    return {};
  });
}

fovea_status fovea_engine_apply_chat_template(fovea_engine* engine, const fovea_chat* chat, char** text,
                                              size_t* bytes) {
  return of_engine("fovea_engine_apply_chat_template", engine, [&](EngineObject& object) -> Status {
    FOVEA_RETURN_IF_ERROR(cleared(text, "text"));
    FOVEA_RETURN_IF_ERROR(cleared(bytes, "bytes"));
    FOVEA_TRY(request, to_chat(chat));
    FOVEA_TRY(made, object.engine().apply_chat_template(request));
    *text = returned_text(made);
    *bytes = made.size();
    return {};
  });
}

fovea_status fovea_engine_submit(fovea_engine* engine, const fovea_request* request, uint64_t* id) {
  return of_engine("fovea_engine_submit", engine, [&](EngineObject& object) -> Status {
    FOVEA_RETURN_IF_ERROR(cleared(id, "id"));
    FOVEA_TRY(given, object.submit(request));
    *id = given;
    return {};
  });
}

fovea_status fovea_engine_check(fovea_engine* engine, const fovea_request* request) {
  return of_engine("fovea_engine_check", engine,
                   [&](EngineObject& object) -> Status { return object.check(request); });
}

fovea_status fovea_engine_cancel(fovea_engine* engine, uint64_t id) {
  return of_engine("fovea_engine_cancel", engine,
                   [&](EngineObject& object) -> Status { return object.cancel(id); });
}

fovea_status fovea_engine_poll(fovea_engine* engine, int64_t timeout_ms, fovea_outputs** out) {
  return of_engine("fovea_engine_poll", engine, [&](EngineObject& object) -> Status {
    FOVEA_RETURN_IF_ERROR(cleared(out, "out"));
    FOVEA_TRY(outputs, object.queue().take(timeout_ms));
    *out = make_batch(std::move(outputs));
    return {};
  });
}

fovea_status fovea_engine_wait(fovea_engine* engine, int64_t timeout_ms, int32_t* idle) {
  return of_engine("fovea_engine_wait", engine, [&](EngineObject& object) -> Status {
    FOVEA_RETURN_IF_ERROR(cleared(idle, "idle"));
    FOVEA_TRY(ended, object.queue().wait_idle(timeout_ms));
    *idle = ended ? 1 : 0;
    return {};
  });
}
