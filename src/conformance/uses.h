#pragma once
// Which cells a case proves: those without whose value its result would differ.
#include "attention/columns.h"
#include "conformance/case_space.h"
#include "conformance/run.h"

namespace fovea::conformance {

/// What a case depends on.
struct Uses {
  bool any_key = false;  ///< some row sees a key; else the case proves nothing
  FeatureSet features;
  bool batch = false;     ///< two or more sequences have rows
  bool chunking = false;  ///< some sequence can be computed in chunks of rows
};

/// `want` and `textbook` are reference() and naive() of its problem. A mask counts if it changes the set of
/// visible keys; a soft cap, slopes, sinks and fp64 if the fp32 textbook without them is judged wrong.
Uses uses_of(const Case& c, const Output& want, const Output& textbook);

/// Whether the case proves `cell` of a backend that runs on `device`.
bool proves(const Case& c, const Uses& uses, const Cell& cell, const DeviceInfo& device);

/// Whether any case can prove `cell`: for example, no kernel here has DCP, and no case tests it.
bool can_be_proven(const Cell& cell, const DeviceInfo& device);

}  // namespace fovea::conformance
