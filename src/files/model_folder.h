#pragma once
// A model's folder: found by its path or its hub id, and checked.
#include <string>
#include <string_view>

#include "fovea/result_fwd.h"

namespace fovea {

/// The local Hugging Face cache: HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub,
/// ~/.cache/huggingface/hub, the first that is set; "" without any.
std::string hub_cache_folder();
/// A part of a hub id, or a commit's or a branch's plain name.
bool is_hub_name(std::string_view name);
/// ORG/NAME
bool is_hub_id(std::string_view name);

/// Resolves a directory (returned unchanged) or a hub id ("Qwen/Qwen3-0.6B") in
/// hub_cache_folder(). Nothing is downloaded; the error explains how to get the files. A hub id's folder must
/// have the file `needs`.
Result<std::string> resolve_model_dir(const std::string& name_or_path,
                                      const std::string& needs = "config.json");

/// DIR/config.json; errors distinguish missing files from missing permission, and name GGUF files.
Result<std::string> find_config(const std::string& dir);
/// An error for a file in llama.cpp's format.
Status refuse_gguf(const std::string& file);

}  // namespace fovea
