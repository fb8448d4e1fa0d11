#pragma once
// Drafters that are one decoder layer on a model's hidden states: EAGLE-1, EAGLE-3 and the MTP layer of a
// model's own checkpoint. Row i has the embedding of token i + 1 and the model's state of row i; its logits
// are of token i + 2. Rows of drafts continue with the head's own state of the row before.
#include <memory>
#include <string>
#include <vector>

#include "fovea/speculative.h"
#include "model/config.h"
#include "model/model.h"

namespace fovea {

/// What a head's config.json, or the model's for an MTP layer, says.
struct DraftHeadConfig {
  DraftMethod method = DraftMethod::none;
  std::string dir;
  /// One decoder layer; vocab_size is that of its logits.
  ModelConfig layer;
  int model_vocab = 0;      ///< of its embedding, the model's
  int states_width = 0;     ///< of a row's state of the model, all of `hidden` side by side
  std::vector<int> hidden;  ///< ids of Model::keep_hidden() of the model; their states make a row's state
  int own_hidden = 1;       ///< likewise of the head: the state that drafts continue with
  bool has_fc = true;       ///< false: EAGLE-3 on the model's last state, of its own width
  bool norm_before_residual = false, norm_before_fc = false, norms_of_parts = false;
};

/// Reads DIR/config.json of a head for `model`: EAGLE's original form, or for eagle3 also that of
/// `speculators`. mtp: `dir` is the model's. Errors name what does not fit the model.
Result<DraftHeadConfig> load_draft_head_config(DraftMethod method, const std::string& dir,
                                               const ModelConfig& model);

struct DraftHead {
  std::unique_ptr<Model> model;
  /// The model's token of each logit (d2t); empty = the same.
  std::vector<int32_t> tokens;
};

/// `model`, whose embedding and LM head are shared where the head has none, must outlive it.
Result<DraftHead> load_draft_head(const DraftHeadConfig& config, const ModelLoadOptions& options,
                                  const Model& model, Stream& stream);

}  // namespace fovea
