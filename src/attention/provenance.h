#pragma once
// Which values were decided, by whom, and which settings came to nothing.
#include <span>

#include "attention/page_size.h"
#include "attention/scene.h"

namespace fovea {

/// The row that a phase runs, would run with its kernels, or was asked for in vain; null = none to speak of.
const BackendInfo* meant(const PhaseSelection& phase);

/// Fills `selection.resolved` and adds to its warnings. `scenes` are in the order of `selection.kinds`;
/// `page` is the page size of the rows that are meant, its size 0 when unknown.
void add_provenance(std::span<const Scene> scenes, const PageSize& page, Selection& selection);

}  // namespace fovea
