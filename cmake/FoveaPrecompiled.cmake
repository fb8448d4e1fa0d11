# Sanitizer builds with clang precompile the most common headers, which take more than half of a file's compile time.
# Release builds do not, so that a missing #include is an error there.
set(FOVEA_PRECOMPILED OFF)
if(FOVEA_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  set(FOVEA_PRECOMPILED ON)
  if(CCACHE)  # by default ccache does not cache compilations that use precompiled headers
    set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
  endif()
endif()
set(standard_headers <algorithm> <array> <atomic> <bit> <charconv> <chrono> <cmath> <condition_variable> <cstdint> <cstring>
  <deque> <filesystem> <fstream> <functional> <iostream> <limits> <list> <map> <memory> <mutex> <numeric> <optional> <random>
  <set> <span> <sstream> <string> <string_view> <thread> <tuple> <unordered_map> <unordered_set> <utility> <variant> <vector>)

# fovea_precompile(name OPTIONS option... HEADERS header... LIBRARIES target...): precompiles the standard headers and
# HEADERS with these options; targets that use them must have the same options.
function(fovea_precompile name)
  cmake_parse_arguments(ARG "" "" "OPTIONS;HEADERS;LIBRARIES" ${ARGN})
  if(FOVEA_PRECOMPILED)
    file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/precompiled/${name}.cc CONTENT "")
    add_library(precompiled_${name} OBJECT ${CMAKE_BINARY_DIR}/precompiled/${name}.cc)
    target_link_libraries(precompiled_${name} PRIVATE fovea_flags ${ARG_LIBRARIES})
    # Not cached: the result contains paths of this build folder. Without a timestamp its bytes are reproducible, so
    # that the cache recognises compilations that use it.
    set_target_properties(precompiled_${name} PROPERTIES CXX_COMPILER_LAUNCHER "")
    target_compile_options(precompiled_${name} PRIVATE ${ARG_OPTIONS} "SHELL:-Xclang -fno-pch-timestamp")
    target_precompile_headers(precompiled_${name} PRIVATE ${standard_headers} ${ARG_HEADERS})
  endif()
endfunction()

function(fovea_use_precompiled target name)
  if(FOVEA_PRECOMPILED)
    target_precompile_headers(${target} REUSE_FROM precompiled_${name})
  endif()
endfunction()

fovea_precompile(hot)
fovea_precompile(cold OPTIONS -O0)
if(FOVEA_TESTS)
  set(test_headers HEADERS <gtest/gtest.h> <gmock/gmock.h> LIBRARIES GTest::gtest GTest::gmock)
endif()
fovea_precompile(program OPTIONS -O0 -fPIE ${test_headers})
