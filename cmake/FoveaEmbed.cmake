# fovea_embed(target namespace folder file...): embeds the files of the folder in the target; the function
# namespace::embedded_files() (base/embedded_file.h) returns them in this order, with the names given here. Content of
# any bytes and size works, because it becomes an array of numbers: string literals have a delimiter and a maximum
# length. Changed files are embedded again by the next build.
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
    # C++ has no arrays without elements; the trailing 0 is not counted below.
    string(APPEND FOVEA_EMBED_ARRAYS "constexpr unsigned char kFile${index}[] = {${numbers}0};\n")
    string(APPEND FOVEA_EMBED_FILES "    {\"${name}\", text(kFile${index}, sizeof kFile${index} - 1), \"${sha256}\"},\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    math(EXPR index "${index} + 1")
  endforeach()
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${target}_embedded.cc)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/embedded.cc.in ${source} @ONLY)
  target_sources(${target} PRIVATE ${source})
endfunction()
