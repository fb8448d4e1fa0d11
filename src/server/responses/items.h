#pragma once
// The input of the Responses API.
#include <vector>

#include "server/openai/conversation.h"

namespace fovea::responses {

/// Reads "input", a text or a list of items, into turns. Items of one answer become one turn, as templates
/// want it; "developer" is a system turn.
void read_items(openai::Fields& fields, std::vector<openai::Turn>& turns);

}  // namespace fovea::responses
