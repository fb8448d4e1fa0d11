# fovea_embed(target namespace folder file...): the bytes of each file of the folder in the target's program;
# namespace::embedded_files() (base/embedded_file.h) has them in this order, by the names given here. Any bytes and any size: they become an array of numbers, as a string
# literal has a delimiter and compilers have limits. A file that changes is read again by the next build.
function(fovea_embed target namespace folder)
  set(FOVEA_EMBED_NAMESPACE ${namespace})
  set(FOVEA_EMBED_ARRAYS "")
  set(FOVEA_EMBED_FILES "")
  set(index 0)
  foreach(name IN LISTS ARGN)
    set(file ${folder}/${name})
    file(READ ${file} hex HEX)
    file(SHA256 ${file} sha256)
    string(REGEX REPLACE "(..)" "0x\\1," numbers "${hex}")
    # An array of no elements is not C++; the zero is not counted below.
    string(APPEND FOVEA_EMBED_ARRAYS "constexpr unsigned char kFile${index}[] = {${numbers}0};\n")
    string(APPEND FOVEA_EMBED_FILES "    {\"${name}\", text(kFile${index}, sizeof kFile${index} - 1), \"${sha256}\"},\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    math(EXPR index "${index} + 1")
  endforeach()
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${target}_embedded.cc)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/embedded.cc.in ${source} @ONLY)
  target_sources(${target} PRIVATE ${source})
endfunction()
