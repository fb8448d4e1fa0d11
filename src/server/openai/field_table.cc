#include "server/openai/field_table.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/edit_distance.h"
#include "server/openai/json_writer.h"

namespace fovea::openai {
namespace {

constexpr auto kNoEffect = FieldRule::Kind::no_effect;
constexpr auto kRefused = FieldRule::Kind::refused;

// Parsers take precedence over this table: chats read "documents", but no parser reads "suffix".
constexpr FieldRule kRules[] = {
    {"user", "OpenAI", kNoEffect, "identifies the end user"},
    {"safety_identifier", "OpenAI", kNoEffect, "identifies the end user"},
    {"metadata", "OpenAI", kNoEffect, "answers are not stored"},
    {"store", "OpenAI", kNoEffect, "answers are not stored"},
    {"service_tier", "OpenAI", kNoEffect, "there is only one tier"},
    {"prompt_cache_key", "OpenAI", kNoEffect, "the prefix cache finds prefixes by their tokens"},
    {"prompt_cache_retention", "OpenAI", kNoEffect,
     "the prefix cache keeps pages as long as its capacity allows"},
    {"prompt_cache_options", "OpenAI", kNoEffect, "the prefix cache finds prefixes by their tokens"},
    {"moderation", "OpenAI", kNoEffect, "there is no moderation"},
    {"request_id", "vLLM", kNoEffect, "set the header `x-request-id` instead"},
    {"rid", "SGLang", kNoEffect, "set the header `x-request-id` instead"},
    {"detokenize", "vLLM", kNoEffect, "answers always contain text"},
    {"truncation_side", "vLLM", kNoEffect, "only with `truncate_prompt_tokens`"},
    {"include_obfuscation", "OpenAI", kNoEffect, "streamed events are not padded"},
    {"stream_reasoning", "SGLang", kNoEffect, "use `include_reasoning`"},
    {"reasoning_in_content", "llama.cpp", kNoEffect, "use `include_reasoning`"},
    {"guided_decoding_backend", "vLLM", kNoEffect, "there is one implementation"},
    {"cache_prompt", "llama.cpp", kNoEffect,
     "prefixes are cached unless the server runs with `--no-enable-prefix-caching`"},
    {"id_slot", "llama.cpp", kNoEffect, "there are no slots"},
    {"slot_id", "llama.cpp", kNoEffect, "there are no slots"},
    {"timings_per_token", "llama.cpp", kNoEffect, "`/metrics` has the times"},
    {"return_progress", "llama.cpp", kNoEffect, "`/metrics` has the running and waiting requests"},
    {"repeat_last_n", "llama.cpp", kNoEffect, "only with `repeat_penalty`"},
    {"penalize_nl", "llama.cpp", kNoEffect, "only with `repeat_penalty`"},
    {"mirostat_tau", "llama.cpp", kNoEffect, "only with `mirostat`"},
    {"mirostat_eta", "llama.cpp", kNoEffect, "only with `mirostat`"},
    {"dry_base", "llama.cpp", kNoEffect, "only with `dry_multiplier`"},
    {"dry_allowed_length", "llama.cpp", kNoEffect, "only with `dry_multiplier`"},
    {"dry_penalty_last_n", "llama.cpp", kNoEffect, "only with `dry_multiplier`"},
    {"dry_sequence_breakers", "llama.cpp", kNoEffect, "only with `dry_multiplier`"},
    {"xtc_threshold", "llama.cpp", kNoEffect, "only with `xtc_probability`"},
    {"dynatemp_exponent", "llama.cpp", kNoEffect, "only with `dynatemp_range`"},
    {"adaptive_decay", "llama.cpp", kNoEffect, "only with `adaptive_target`"},
    {"parse_tool_calls", "llama.cpp", kNoEffect, "calls are parsed where `tools` are given"},
    {"chat_format", "llama.cpp", kNoEffect, "the prompt is rendered by the chat template only"},
    {"keep_alive", "Ollama", kNoEffect, "the model stays in memory"},

    {"grammar_lazy", "llama.cpp", kRefused, "use structural_tag"},
    {"grammar_triggers", "llama.cpp", kRefused, "use structural_tag"},
    {"preserved_tokens", "llama.cpp", kRefused, "use skip_special_tokens = false"},
    {"format", "Ollama", kRefused, "use response_format"},
    {"functions", "OpenAI", kRefused, "use tools"},
    {"function_call", "OpenAI", kRefused, "use tool_choice", "\"none\" \"auto\""},
    {"web_search_options", "OpenAI", kRefused, "put the search results into a message"},
    {"audio", "OpenAI", kRefused, "answers are text"},
    {"chunking_strategy", "OpenAI", kRefused, "long audio is cut where the model's timestamps say",
     "\"auto\""},
    {"known_speaker_names", "OpenAI", kRefused, "transcripts do not tell speakers apart"},
    {"known_speaker_references", "OpenAI", kRefused, "transcripts do not tell speakers apart"},
    {"max_tokens_per_doc", "Cohere", kRefused, "documents are cut to what the model takes"},
    {"rank_fields", "Cohere", kRefused, "write the fields into the documents' texts"},
    {"modalities", "OpenAI", kRefused, "answers are text", "\"text\""},
    {"prediction", "OpenAI", kRefused, "predicted outputs are not supported"},
    {"verbosity", "OpenAI", kRefused, "ask for it in a message", "\"medium\""},
    {"best_of", "OpenAI", kRefused, "use n, and choose among the answers by their logprobs", "1"},
    {"suffix", "OpenAI", kRefused, "write the model's fill-in-the-middle tokens into the prompt"},
    {"prompt_embeds", "vLLM", kRefused, "send the prompt's text or token ids"},
    {"use_beam_search", "vLLM", kRefused, "use n with a temperature above 0"},
    {"num_beams", "transformers", kRefused, "use n with a temperature above 0", "1"},
    {"length_penalty", "vLLM", kRefused, "beam search is not supported", "1 0"},
    {"early_stopping", "transformers", kRefused, "beam search is not supported"},
    {"do_sample", "transformers", kRefused, "use temperature: 0 is greedy", "true"},
    {"no_repeat_ngram_size", "transformers", kRefused, "use repetition_penalty or bad_words", "0"},
    {"typical_p", "llama.cpp, transformers", kRefused, "use top_p or min_p", "1"},
    {"tfs_z", "llama.cpp", kRefused, "use top_p or min_p", "1"},
    {"top_a", "others", kRefused, "use min_p", "0"},
    {"top_n_sigma", "llama.cpp", kRefused, "use min_p", "-1 0"},
    {"min_keep", "llama.cpp", kRefused, "use a lower min_p or a higher top_p", "0 1"},
    {"mirostat", "llama.cpp", kRefused, "use temperature with top_p or min_p", "0"},
    {"dry_multiplier", "llama.cpp", kRefused, "use repetition_penalty or frequency_penalty", "0"},
    {"xtc_probability", "llama.cpp", kRefused, "use temperature with min_p", "0"},
    {"dynatemp_range", "llama.cpp", kRefused, "use temperature", "0"},
    {"adaptive_target", "llama.cpp", kRefused, "use temperature", "-1"},
    {"samplers", "llama.cpp", kRefused, "the order of the samplers is fixed"},
    {"backend_sampling", "llama.cpp", kRefused, "there is only one sampler implementation"},
    {"repeat_penalty", "llama.cpp", kRefused,
     "use repetition_penalty, which covers the whole prompt and answer", "1"},
    {"repetition_detection", "vLLM", kRefused, "use repetition_penalty or stop"},
    {"logits_processors", "vLLM", kRefused, "use logit_bias, bad_words or allowed_token_ids"},
    {"custom_logit_processor", "SGLang", kRefused, "use logit_bias, bad_words or allowed_token_ids"},
    {"custom_params", "SGLang", kRefused, "use logit_bias, bad_words or allowed_token_ids"},
    {"vllm_xargs", "vLLM", kRefused, "there are no extensions"},
    {"extra_args", "vLLM", kRefused, "there are no extensions"},
    {"lora_path", "SGLang", kRefused, "name the adapter as the model (docs/lora.md)"},
    {"lora_id", "SGLang", kRefused, "name the adapter as the model (docs/lora.md)"},
    {"lora", "llama.cpp", kRefused, "name the adapter as the model (docs/lora.md)"},
    {"lora_request", "vLLM", kRefused, "name the adapter as the model (docs/lora.md)"},
    {"stop_regex", "SGLang", kRefused, "use stop"},
    {"no_stop_trim", "SGLang", kRefused, "use include_stop_str_in_output"},
    {"stop_sequences", "Anthropic", kRefused, "use stop"},
    {"sampling_seed", "SGLang", kRefused, "use seed"},
    {"n_predict", "llama.cpp", kRefused, "use max_tokens", "-1"},
    {"max_new_tokens", "SGLang, transformers", kRefused, "use max_tokens"},
    {"max_output_tokens", "OpenAI", kRefused, "use max_tokens"},
    {"min_new_tokens", "SGLang, transformers", kRefused, "use min_tokens", "0"},
    {"max_length", "transformers", kRefused, "use max_tokens"},
    {"n_probs", "llama.cpp", kRefused, "use logprobs", "0"},
    {"post_sampling_probs", "llama.cpp", kRefused, "logprobs are computed before sampling filters"},
    {"logprob_token_ids", "vLLM", kRefused, "use logprobs with more of the most probable tokens"},
    {"flat_logprobs", "vLLM", kRefused, "logprobs have OpenAI's format"},
    {"return_logprob", "SGLang", kRefused, "use logprobs"},
    {"top_logprobs_num", "SGLang", kRefused, "use logprobs", "0"},
    {"logprob_start_len", "SGLang", kRefused, "use prompt_logprobs", "-1"},
    {"n_keep", "llama.cpp", kRefused, "a prompt that is too long is an error", "0 -1"},
    {"n_discard", "llama.cpp", kRefused, "a prompt that is too long is an error", "0"},
    {"n_indent", "llama.cpp", kRefused, "ask for it in the prompt", "0"},
    {"n_cmpl", "llama.cpp", kRefused, "use n", "1"},
    {"t_max_predict_ms", "llama.cpp", kRefused, "use max_tokens, and close the connection on a timeout",
     "0 -1"},
    {"t_max_prompt_ms", "llama.cpp", kRefused, "close the connection on a timeout", "0 -1"},
    {"truncate_prompt_tokens", "vLLM", kRefused, "shorten the prompt"},
    {"truncate", "TGI", kRefused, "shorten the prompt"},
    {"truncation", "OpenAI", kRefused, "shorten the prompt", "\"disabled\""},
    {"extra_key", "SGLang", kRefused, "use cache_salt"},
    {"session_params", "SGLang", kRefused, "send the whole conversation; its prefix is cached"},
    {"chat_template", "vLLM", kRefused,
     "start the server with --chat-template, or render the prompt and use /v1/completions"},
    {"thinking_token_budget", "vLLM", kRefused,
     "use max_tokens, or the template's own variables in chat_template_kwargs"},
    {"thinking_budget_tokens", "llama.cpp", kRefused,
     "use max_tokens, or the template's own variables in chat_template_kwargs", "-1"},
    {"reasoning", "OpenRouter", kRefused, "use reasoning_effort"},
    {"reasoning_budget", "llama.cpp", kRefused,
     "use max_tokens, or the template's own variables in chat_template_kwargs", "-1"},
    {"thinking_forced_open", "llama.cpp", kRefused,
     "use the template's own variables in chat_template_kwargs"},
    {"mm_processor_kwargs", "vLLM", kRefused, "messages are text"},
    {"media_io_kwargs", "vLLM", kRefused, "messages are text"},
    {"use_audio_in_video", "SGLang", kRefused, "messages are text"},
    {"image_data", "SGLang, llama.cpp", kRefused, "messages are text"},
    {"images", "Ollama", kRefused, "messages are text"},
    {"multimodal_data", "llama.cpp", kRefused, "messages are text"},
    {"input_prefix", "llama.cpp", kRefused, "write the model's fill-in-the-middle tokens into the prompt"},
    {"input_suffix", "llama.cpp", kRefused, "write the model's fill-in-the-middle tokens into the prompt"},
    {"input_extra", "llama.cpp", kRefused, "write it into the prompt"},
    {"raw", "Ollama", kRefused, "use /v1/completions for a prompt without a template"},
    {"options", "Ollama", kRefused, "give its fields at the top level: temperature, top_p, max_tokens"},
    {"template", "Ollama", kRefused, "start the server with --chat-template"},
    {"return_tokens", "llama.cpp", kRefused, "use return_token_ids"},
    {"return_prompt_token_ids", "SGLang", kRefused, "use return_token_ids"},
    {"return_hidden_states", "SGLang", kRefused, "use an embedding model and /v1/embeddings"},
    {"return_routed_experts", "SGLang", kRefused, "answers do not include the experts"},
    {"return_meta_info", "SGLang", kRefused, "usage contains the token counts"},
    {"return_cached_tokens_details", "SGLang", kRefused, "usage contains cached_tokens"},
    {"return_full_text", "TGI", kRefused, "use echo"},
    {"details", "TGI", kRefused, "use logprobs or return_token_ids"},
    {"decoder_input_details", "TGI", kRefused, "use prompt_logprobs"},
    {"watermark", "TGI", kRefused, "watermarking is not supported"},
    {"response_fields", "llama.cpp", kRefused, "answers always contain all fields"},
    {"kv_transfer_params", "vLLM", kRefused, "prefill and decode run in one process"},
    {"ec_transfer_params", "vLLM", kRefused, "prefill and decode run in one process"},
    {"bootstrap_host", "SGLang", kRefused, "prefill and decode run in one process"},
    {"bootstrap_port", "SGLang", kRefused, "prefill and decode run in one process"},
    {"bootstrap_room", "SGLang", kRefused, "prefill and decode run in one process"},
    {"data_parallel_rank", "SGLang", kRefused, "there is one replica", "0 -1"},
    {"routed_dp_rank", "SGLang", kRefused, "there is one replica", "0 -1"},
    {"disagg_prefill_dp_rank", "SGLang", kRefused, "prefill and decode run in one process"},
    {"input_ids", "SGLang", kRefused, "send the token ids as prompt of /v1/completions"},
    {"inputs", "TGI", kRefused, "use prompt, messages or input"},
    {"parameters", "TGI", kRefused, "give its fields at the top level: temperature, top_p, max_tokens"},
    {"sampling_params", "SGLang", kRefused,
     "give its fields at the top level: temperature, top_p, max_tokens"},
    {"content", "llama.cpp", kRefused, "use prompt, or input of /v1/embeddings"},
    {"with_pieces", "llama.cpp", kRefused, "use return_token_strs"},
    {"parse_special", "llama.cpp", kRefused, "special tokens in the text are always parsed", "true"},
    {"system", "Anthropic", kRefused, "use a message with the role system"},
    {"extra_body", "clients", kRefused, "give its fields at the top level; clients merge them into the body"},
    {"extra_headers", "clients", kRefused, "send them as headers"},
    {"extra_query", "clients", kRefused, "query parameters are not read"},
    {"timeout", "clients", kRefused, "set it in the client"},
    {"provider", "OpenRouter", kRefused, "there is only this server"},
    {"plugins", "OpenRouter", kRefused, "there are none"},
    {"transforms", "OpenRouter", kRefused, "shorten the prompt"},
    {"route", "OpenRouter", kRefused, "there is one model"},
    {"models", "OpenRouter", kRefused, "there is one model"},
    {"custom_id", "OpenAI", kRefused, "use \"id\" for a row's name"},
    {"method", "OpenAI", kRefused, "give the content of \"body\" as the row itself"},
    {"url", "OpenAI", kRefused, "give the content of \"body\" as the row itself"},
    {"body", "OpenAI", kRefused, "give the content of \"body\" as the row itself"},
    {"normalize", "vLLM", kRefused,
     "the model's modules.json decides this; start the server with a model that has the setting"},
    {"embd_normalize", "llama.cpp", kRefused, "the model's modules.json decides this"},
    {"pooling", "others", kRefused, "the model decides the pooling; fovea embed has --pooling"},
    {"pooling_type", "vLLM", kRefused, "the model decides the pooling; fovea embed has --pooling"},
    {"use_activation", "vLLM", kRefused, "the model's modules.json decides this"},
    {"activation", "vLLM", kRefused, "the model's modules.json decides this"},
    {"softmax", "vLLM", kRefused, "the model's modules.json decides this"},
    {"embed_dtype", "vLLM", kRefused, "vectors are float32; encoding_format can be \"base64\"",
     "\"float32\""},
    {"endianness", "vLLM", kRefused, "vectors are little-endian", "\"native\" \"little\""},
    {"additional_data", "vLLM", kRefused, "nothing reads it"},
    {"input_type", "others", kRefused, "write the model's prefix before the text"},
    {"prompt_name", "sentence-transformers", kRefused, "write the model's prefix before the text"},
    {"task", "vLLM", kRefused, "write the model's prefix before the text"},
    {"late_chunking", "Jina", kRefused, "each input has one vector"},
    {"return_documents", "others", kRefused, "reranking is not supported"},
    {"top_n", "others", kRefused, "reranking is not supported"},
    {"query", "others", kRefused, "reranking is not supported; compare vectors of /v1/embeddings"},
};

constexpr std::string_view kMessage[] = {"role",
                                         "content",
                                         "name",
                                         "tool_calls",
                                         "tool_call_id",
                                         "function_call",
                                         "refusal",
                                         "reasoning_content",
                                         "reasoning",
                                         "reasoning_details",
                                         "thinking",
                                         "tool_name",
                                         "prefix",
                                         "annotations",
                                         "audio",
                                         "cache_control",
                                         "id"};
constexpr std::string_view kPart[] = {"type", "text", "refusal", "annotations", "cache_control"};
constexpr std::string_view kCall[] = {"id", "type", "index", "function"};
constexpr std::string_view kFunction[] = {"name", "arguments", "description", "parameters"};

/// Compares numbers by value (1 equals 1.0) and everything else by text.
bool is_value(std::string_view wanted, const std::string& given, const text::Json& value) {
  if (wanted == given) return true;
  double number = 0;
  const auto end = std::from_chars(wanted.data(), wanted.data() + wanted.size(), number);
  return end.ec == std::errc() && value.real() && *value.real() == number;
}

}  // namespace

std::span<const FieldRule> field_rules() {
  return kRules;
}

const FieldRule* find_rule(std::string_view name) {
  const auto found = std::ranges::find(kRules, name, &FieldRule::name);
  return found == std::end(kRules) ? nullptr : found;
}

bool is_off(const FieldRule& rule, const text::Json& value) {
  std::string given;
  if (value.array() || value.object()) {
    // ["text"] and {"type": "text"} are equivalent to "text".
    const text::Json::Array* list = value.array();
    if (list && list->size() == 1 && (*list)[0].string()) return is_off(rule, (*list)[0]);
    if (list) return list->empty();
    const text::Json::Object& object = *value.object();
    if (object.size() == 1 && object[0].first == "type") return is_off(rule, object[0].second);
    return object.empty();
  }
  append_json(given, value);
  if (given == "null" || given == "false" || given == "\"\"") return true;
  for (std::string_view left = rule.off; !left.empty();) {
    const size_t end = std::min(left.find(' '), left.size());
    if (is_value(left.substr(0, end), given, value)) return true;
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return false;
}

std::string refusal(const FieldRule& rule, const std::string& shown, const std::string& value) {
  return shown + " is not supported (it is " + value + "); leave it out: " + std::string(rule.note);
}

std::string unknown_field(const std::string& shown, std::string_view name,
                          std::span<const std::string_view> known) {
  const std::string_view near = nearest_name(name, {known.begin(), known.end()});
  return "unknown field " + shown + (near.empty() ? "" : "; did you mean \"" + std::string(near) + "\"?");
}

std::span<const std::string_view> message_fields() {
  return kMessage;
}

std::span<const std::string_view> part_fields() {
  return kPart;
}

std::span<const std::string_view> call_fields() {
  return kCall;
}

std::span<const std::string_view> function_fields() {
  return kFunction;
}

}  // namespace fovea::openai
