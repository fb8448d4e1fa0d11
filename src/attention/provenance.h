#pragma once
// Which values were decided, by whom, and which settings came to nothing.
#include <span>

#include "attention/page_size.h"
#include "attention/selection_context.h"

namespace fovea {

/// The row that a phase runs, would run with its kernels, or was asked for in vain; null = none to speak of.
const BackendInfo* meant(const PhaseSelection& phase);

/// Fills `selection.resolved` and adds to its warnings. `contexts` are in the order of `selection.kinds`;
/// `page` is the page size of the rows that are meant, its size 0 when unknown.
void add_provenance(std::span<const SelectionContext> contexts, const PageSize& page, Selection& selection);

}  // namespace fovea
