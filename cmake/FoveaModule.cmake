# The flags of all targets, and fovea_module(): one folder of src/ = one static library, with the unit tests that
# lie beside the code (*_test.cc) in one program.

add_library(fovea_flags INTERFACE)
target_compile_options(fovea_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror>
  # g++ 12 reports overlaps inside std::string's operator+ that do not exist (GCC bug 105651).
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict>
  # clang reports deprecated functions that libstdc++'s std::stable_sort uses internally.
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:Clang>>:-Wno-deprecated-declarations>
  # No implicit fused multiply-add: kernels write fma explicitly, so that every path rounds alike.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off -fstack-protector-strong>
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr -Werror=all-warnings -Xptxas=-v -Xcompiler=-Wall>)
target_compile_definitions(fovea_flags INTERFACE $<$<CONFIG:Release>:_FORTIFY_SOURCE=2>)
if(FOVEA_SANITIZE)
  target_compile_options(fovea_flags INTERFACE -fsanitize=${FOVEA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(fovea_flags INTERFACE -fsanitize=${FOVEA_SANITIZE})
  if(FOVEA_SANITIZE MATCHES undefined)
    # The vptr check opens a pipe to test whether memory is readable, and reports valid objects as broken when file
    # descriptors have run out, as in some tests of the server.
    target_compile_options(fovea_flags INTERFACE -fno-sanitize=vptr)
  endif()
  find_program(FOVEA_LLD ld.lld-19)
  if(FOVEA_LLD AND CMAKE_CXX_COMPILER_ID STREQUAL Clang)  # links in a third of the time
    target_link_options(fovea_flags INTERFACE -fuse-ld=lld)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)  # false positives in instrumented code
    # -Wtsan: Asio uses fences, which the thread sanitizer does not model; mutexes establish the same order.
    target_compile_options(fovea_flags INTERFACE -Wno-maybe-uninitialized -Wno-tsan)
  endif()
endif()

# Sources named *_avx2.cc and *_avx512.cc contain kernels for one instruction set. They may only contain code that is
# reached through the run-time dispatch: of an inline function, the linker could keep the copy compiled there for
# all callers.
set(FOVEA_AVX2_FLAGS -mavx2 -mfma -mf16c)
set(FOVEA_AVX512_FLAGS -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c)

function(fovea_isa_flags)
  foreach(source IN LISTS ARGN)
    if(source MATCHES "_avx2\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${FOVEA_AVX2_FLAGS}" SKIP_PRECOMPILE_HEADERS ON)
    elseif(source MATCHES "_avx512\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${FOVEA_AVX512_FLAGS}" SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()

# Adds the include path of CUDA to the C++ sources that are compiled only with CUDA. All other sources have the same
# command line with and without CUDA, so that a compiler cache serves both builds.
function(fovea_cuda_headers)
  foreach(source IN LISTS ARGN)
    if(FOVEA_CUDA AND source MATCHES "_cuda(_test)?\\.cc$|/(device|profile|c_api|plugin|ops|tune|engine|flex)/cuda/|/kernels/cuda/tiles/")
      foreach(folder IN LISTS CUDAToolkit_INCLUDE_DIRS)
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -isystem${folder})
      endforeach()
    endif()
  endforeach()
endfunction()

# Adds CUDA sources to a target. Those named *_sm90a.cu use instructions that exist only on Hopper and are compiled for
# sm_90a alone; at run time they are reached only on devices of compute capability 9.0.
function(fovea_cuda_sources target)
  if(ARGN)
    target_include_directories(${target} SYSTEM PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${CUDAToolkit_INCLUDE_DIRS}>)
  endif()
  set(portable ${ARGN})
  list(FILTER portable EXCLUDE REGEX "_sm90a\\.cu$")
  set(hopper ${ARGN})
  list(FILTER hopper INCLUDE REGEX "_sm90a\\.cu$")
  target_sources(${target} PRIVATE ${portable})
  if(hopper)
    add_library(${target}_sm90a OBJECT ${hopper})
    set_target_properties(${target}_sm90a PROPERTIES CUDA_ARCHITECTURES OFF)
    target_compile_options(${target}_sm90a PRIVATE -gencode=arch=compute_90a,code=sm_90a)
    target_link_libraries(${target}_sm90a PRIVATE fovea_flags CUDA::cudart_static)
    target_include_directories(${target}_sm90a PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_sm90a>)
  endif()
endfunction()

# For code whose run time does not matter in tests: sanitizer builds skip its optimisation, which saves build time.
function(fovea_cold target precompiled)
  target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Release>>>:-O0>)
  fovea_use_precompiled(${target} ${precompiled})
endfunction()

# fovea_module(name [THREADED] [COLD] [SANITIZED_FILTER filter] [THREAD_FILTER filter] [FOLDERS dir...] [DEPENDS target...] [PRIVATE_LIBRARIES lib...] [APART source...])
# THREADED: the tests also run under the thread sanitizer. COLD: see fovea_cold. SANITIZED_FILTER, THREAD_FILTER: see
# fovea_test. APART: sources that FOVEA_UNITY compiles on their own, because names in their anonymous namespaces clash
# with those of other sources of the module. Without FOVEA_CUDA, *_cuda.cc and *_cuda_test.cc are left out. *_test.cu
# contain test kernels; the expectations are in *_test.cc, because GoogleTest's headers cost nvcc a minute.
function(fovea_module name)
  cmake_parse_arguments(ARG "THREADED;COLD" "SANITIZED_FILTER;THREAD_FILTER" "FOLDERS;DEPENDS;PRIVATE_LIBRARIES;APART" ${ARGN})
  if(NOT ARG_FOLDERS)
    set(ARG_FOLDERS ${name})
  endif()
  set(sources "")
  foreach(folder IN LISTS ARG_FOLDERS)
    set(patterns ${CMAKE_SOURCE_DIR}/src/${folder}/*.cc)
    if(FOVEA_CUDA)
      list(APPEND patterns ${CMAKE_SOURCE_DIR}/src/${folder}/*.cu)
    endif()
    file(GLOB found CONFIGURE_DEPENDS ${patterns})
    list(APPEND sources ${found})
  endforeach()
  if(NOT FOVEA_CUDA)
    list(FILTER sources EXCLUDE REGEX "_cuda(_test)?\\.cc$")
  endif()
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_(test|bench|fuzz)\\.cc$|_test(_sm90a)?\\.cu$")
  set(cuda_sources ${sources})
  list(FILTER cuda_sources INCLUDE REGEX "\\.cu$")
  list(FILTER sources EXCLUDE REGEX "\\.cu$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$|_test(_sm90a)?\\.cu$")
  fovea_isa_flags(${sources})
  fovea_cuda_headers(${sources})
  if(sources OR cuda_sources)
    add_library(fovea_${name} STATIC ${sources})
    fovea_cuda_sources(fovea_${name} ${cuda_sources})
    if(FOVEA_UNITY)
      list(TRANSFORM ARG_APART REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/src/\\1.cc")
      set_source_files_properties(${ARG_APART} ${cuda_sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      set_target_properties(fovea_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
      # g++ treats sources that are included by a unity file as headers, whose types must not use anonymous namespaces.
      target_compile_options(fovea_${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
    endif()
    add_library(fovea::${name} ALIAS fovea_${name})
    target_link_libraries(fovea_${name} PRIVATE $<BUILD_INTERFACE:fovea_flags> ${ARG_PRIVATE_LIBRARIES})
    target_link_libraries(fovea_${name} PUBLIC ${ARG_DEPENDS})
    if(ARG_COLD)
      fovea_cold(fovea_${name} cold)
    else()
      fovea_use_precompiled(fovea_${name} hot)
    endif()
    if(cuda_sources)
      target_link_libraries(fovea_${name} PUBLIC $<LINK_ONLY:CUDA::cudart_static>)
    endif()
    set(scope PUBLIC)
  else()
    add_library(fovea_${name} INTERFACE)
    add_library(fovea::${name} ALIAS fovea_${name})
    target_link_libraries(fovea_${name} INTERFACE ${ARG_DEPENDS})
    set(scope INTERFACE)
  endif()
  set_target_properties(fovea_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(fovea_${name} ${scope} cxx_std_20)
  target_include_directories(fovea_${name} ${scope}
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>
    $<INSTALL_INTERFACE:include>)
  set_property(GLOBAL APPEND PROPERTY FOVEA_MODULES fovea_${name})
  if(FOVEA_TESTS AND tests)
    if(ARG_THREADED)
      set(threaded THREADED)
    endif()
    fovea_test(${name}_test ${threaded} SOURCES ${tests} LIBRARIES fovea_${name} SANITIZED_FILTER ${ARG_SANITIZED_FILTER} THREAD_FILTER ${ARG_THREAD_FILTER})
  endif()
endfunction()

# fovea_test(name [THREADED] SOURCES file... LIBRARIES target... [TIMEOUT seconds] [SANITIZED_FILTER filter] [THREAD_FILTER filter]):
# a GoogleTest program. SANITIZED_FILTER selects the tests that run in sanitizer builds, by default all; THREAD_FILTER
# replaces it for the thread sanitizer.
add_custom_target(thread_tests)
function(fovea_test name)
  cmake_parse_arguments(ARG "THREADED" "TIMEOUT;SANITIZED_FILTER;THREAD_FILTER" "SOURCES;LIBRARIES" ${ARGN})
  set(cuda_sources ${ARG_SOURCES})
  list(FILTER cuda_sources INCLUDE REGEX "\\.cu$")
  list(FILTER ARG_SOURCES EXCLUDE REGEX "\\.cu$")
  add_executable(${name} ${ARG_SOURCES})
  fovea_cuda_sources(${name} ${cuda_sources})
  fovea_isa_flags(${ARG_SOURCES})
  fovea_cuda_headers(${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE fovea_flags ${ARG_LIBRARIES} GTest::gtest_main GTest::gmock)
  # Test code runs once: its full optimisation would take a third of the compile time, with a sanitizer more than half.
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:$<IF:$<CONFIG:Release>,-O1,-O0>>)
  fovea_use_precompiled(${name} program)
  target_compile_definitions(${name} PRIVATE FOVEA_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  set(filter)
  if(FOVEA_SANITIZE)  # ten times slower
    target_compile_definitions(${name} PRIVATE FOVEA_SANITIZED)
    math(EXPR ARG_TIMEOUT "10 * ${ARG_TIMEOUT}")
    if(ARG_THREAD_FILTER AND FOVEA_SANITIZE STREQUAL thread)
      set(ARG_SANITIZED_FILTER ${ARG_THREAD_FILTER})
    endif()
    if(ARG_SANITIZED_FILTER)
      set(filter --gtest_filter=${ARG_SANITIZED_FILTER})
    endif()
  endif()
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=1 ${filter})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT})
  if(ARG_THREADED)
    set_tests_properties(${name} PROPERTIES LABELS threads)
    add_dependencies(thread_tests ${name})
  endif()
endfunction()

# fovea_fuzzer(name SOURCE file LIBRARIES target... CORPUS dir): a libFuzzer program; its ctest runs the corpus.
add_custom_target(fuzzers)
function(fovea_fuzzer name)
  cmake_parse_arguments(ARG "" "SOURCE;CORPUS" "LIBRARIES" ${ARGN})
  if(NOT FOVEA_FUZZ)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCE})
  target_link_libraries(${name} PRIVATE fovea_flags ${ARG_LIBRARIES})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  fovea_cold(${name} program)
  add_test(NAME ${name} COMMAND ${name} -runs=0 ${CMAKE_SOURCE_DIR}/${ARG_CORPUS})
  set_tests_properties(${name} PROPERTIES LABELS fuzz)
  add_dependencies(fuzzers ${name})
endfunction()
