#pragma once
// The resolved values, their sources, and the settings with no effect.
#include <span>

#include "attention/page_size.h"
#include "attention/selection_context.h"
#include "fovea/attention.h"

namespace fovea {

/// The row that a phase runs, would run if it were built, or that was requested and refused; null = none.
const BackendInfo* meant(const PhaseSelection& phase);

/// Fills `selection.resolved` and adds to its warnings. `contexts` are in the order of `selection.kinds`;
/// `page` is the page size of the rows of meant(), with size 0 when unknown.
void add_provenance(std::span<const SelectionContext> contexts, const PageSize& page, Selection& selection);

}  // namespace fovea
