#include "model/family.h"

namespace fovea {
namespace {
constexpr const Family* kFamilies[] = {
    &kLlamaFamily,      &kLlama4Family,       &kMistralFamily,     &kMixtralFamily,     &kQwen2Family,
    &kQwen3Family,      &kQwen3MoeFamily,     &kGptOssFamily,      &kGemma2Family,      &kGemma3Family,
    &kOlmo2Family,      &kGraniteFamily,      &kPhi3Family,        &kBertFamily,        &kDistilBertFamily,
    &kRobertaFamily,    &kXlmRobertaFamily,   &kCamembertFamily,   &kBartFamily,        &kWhisperFamily,
    &kDeepseekV2Family, &kDeepseekV3Family,   &kGlm4MoeLiteFamily, &kDeepseekV32Family, &kGlmMoeDsaFamily,
    &kMiniCpm3Family,   &kLongcatFlashFamily,
};
}

std::span<const Family* const> families() {
  return kFamilies;
}

const Family* find_family(std::string_view architecture) {
  for (const Family* family : kFamilies)
    for (const std::string_view name : family->architectures)
      if (!name.empty() && name == architecture) return family;
  return nullptr;
}

const Family* find_family_of_type(std::string_view model_type) {
  for (const Family* family : kFamilies)
    if (family->model_type == model_type) return family;
  return nullptr;
}

}  // namespace fovea
