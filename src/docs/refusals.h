#pragma once
// What the program really says, for the pages: each message is the answer to a configuration that is tried.
#include "docs/template.h"

namespace fovea::docs {

/// Adds "error:NAME" for every refusal that docs/attention_backends.md shows.
Status add_refusals(Values& values);

}  // namespace fovea::docs
