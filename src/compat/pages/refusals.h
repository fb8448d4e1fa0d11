#pragma once
// The program's actual error messages for the pages: each comes from a configuration that is tried.
#include "compat/pages/template.h"

namespace fovea::docs {

/// Adds "error:NAME" for every refusal that docs/attention_backends.md shows.
Status add_refusals(Values& values);

}  // namespace fovea::docs
