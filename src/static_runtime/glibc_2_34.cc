// The static libstdc++ and libgcc of a new distribution need functions of a newer glibc than the programs
// promise to require (FOVEA_GLIBC): these are the same functions, built on older ones. Hidden, so that other
// objects do not see them.
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#define FOVEA_HIDDEN extern "C" __attribute__((visibility("hidden")))

namespace {

#ifdef DLFO_STRUCT_HAS_EH_DBASE  // glibc 2.35 and later: the libgcc of an older one does not call it
struct Search {
  uintptr_t address;
  dl_find_object* found;
};

/// Whether this object contains the address; if so, its address range and that of its unwind table.
int search_object(dl_phdr_info* object, size_t, void* argument) {
  const auto* search = static_cast<Search*>(argument);
  const ElfW(Phdr)* segment_of_address = nullptr;
  const ElfW(Phdr)* unwind_table = nullptr;
  uintptr_t start = UINTPTR_MAX;
  uintptr_t end = 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = object->dlpi_phdr[i];
    const uintptr_t first = object->dlpi_addr + header.p_vaddr;
    const uintptr_t last = first + header.p_memsz;
    if (header.p_type == PT_LOAD) {
      start = first < start ? first : start;
      end = last > end ? last : end;
      if (search->address >= first && search->address < last) segment_of_address = &header;
    } else if (header.p_type == PT_GNU_EH_FRAME) {
      unwind_table = &header;
    }
  }
  if (segment_of_address == nullptr) return 0;
  *search->found = {};
  // NOLINTBEGIN(performance-no-int-to-ptr): the loader's addresses are integers
  search->found->dlfo_map_start = reinterpret_cast<void*>(start);
  search->found->dlfo_map_end = reinterpret_cast<void*>(end);
  if (unwind_table != nullptr)
    search->found->dlfo_eh_frame = reinterpret_cast<void*>(object->dlpi_addr + unwind_table->p_vaddr);
  // NOLINTEND(performance-no-int-to-ptr)
  return 1;
}
#endif

}  // namespace

#ifdef DLFO_STRUCT_HAS_EH_DBASE
/// libgcc's unwinder finds objects by it (GLIBC_2.35); older versions use dl_iterate_phdr, as here.
FOVEA_HIDDEN int _dl_find_object(void* address, dl_find_object* result) noexcept {
  Search search{.address = reinterpret_cast<uintptr_t>(address), .found = result};
  return dl_iterate_phdr(search_object, &search) == 1 && result->dlfo_eh_frame != nullptr ? 0 : -1;
}
#endif

/// std::random_device uses it (GLIBC_2.36); it never fails.
FOVEA_HIDDEN uint32_t arc4random() noexcept {
  uint32_t bits = 0;
  if (getentropy(&bits, sizeof bits) != 0) std::abort();
  return bits;
}
