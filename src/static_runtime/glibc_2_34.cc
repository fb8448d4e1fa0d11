// What the static libstdc++ and libgcc of a new distribution ask of a newer glibc than the programs promise
// to need (FOVEA_GLIBC): the same functions, from what older ones have. Hidden, so that nothing outside sees
// these.
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#define FOVEA_HIDDEN extern "C" __attribute__((visibility("hidden")))

namespace {

#ifdef DLFO_STRUCT_HAS_EH_DBASE  // glibc 2.35 and later: an older one's libgcc does not ask for it
struct Search {
  uintptr_t address;
  dl_find_object* found;
};

/// Whether this object has the address; then where it lies and where its table of unwind entries is.
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
  search->found->dlfo_map_start = reinterpret_cast<void*>(start);
  search->found->dlfo_map_end = reinterpret_cast<void*>(end);
  if (unwind_table != nullptr)
    search->found->dlfo_eh_frame = reinterpret_cast<void*>(object->dlpi_addr + unwind_table->p_vaddr);
  return 1;
}
#endif

}  // namespace

#ifdef DLFO_STRUCT_HAS_EH_DBASE
/// libgcc's unwinder looks objects up by it (GLIBC_2.35); before, it did as is done here.
FOVEA_HIDDEN int _dl_find_object(void* address, dl_find_object* result) noexcept {
  Search search{.address = reinterpret_cast<uintptr_t>(address), .found = result};
  return dl_iterate_phdr(search_object, &search) == 1 && result->dlfo_eh_frame != nullptr ? 0 : -1;
}
#endif

/// std::random_device draws from it (GLIBC_2.36), which never fails.
FOVEA_HIDDEN uint32_t arc4random() noexcept {
  uint32_t bits = 0;
  if (getentropy(&bits, sizeof bits) != 0) std::abort();
  return bits;
}
