#pragma once
#include <string>

#include "profile/step_table.h"

namespace fovea::profile {

/// A picture of the step: all of it, one layer of it enlarged, and the operations with their times and
/// floors.
std::string timeline_svg(const StepTable& table, const std::string& title);

}  // namespace fovea::profile
