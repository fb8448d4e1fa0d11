#pragma once
// Times in answers.
#include <cstdint>
#include <string>

namespace fovea::openai {

/// "2026-11-26T12:30:00Z", with nine digits of the fraction if there is one. `seconds`: since 1970.
std::string utc_time(int64_t seconds, int64_t nanoseconds = 0);

}  // namespace fovea::openai
