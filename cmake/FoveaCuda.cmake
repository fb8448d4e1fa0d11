# CUDA: SASS for sm_80 and sm_90, PTX of compute_80 for later architectures; CI compiles for one architecture. The
# runtime is linked statically, and the driver is looked for at run time, so that the program starts on a machine without
# a GPU.
if(NOT CMAKE_CUDA_COMPILER)
  find_program(NVCC nvcc HINTS /usr/local/cuda/bin)
  if(NOT NVCC)
    message(FATAL_ERROR "FOVEA_CUDA=ON, but nvcc is not found; install the CUDA toolkit, or configure with -DFOVEA_CUDA=OFF")
  endif()
  set(CMAKE_CUDA_COMPILER ${NVCC})
endif()
set(FOVEA_CUDA_ARCHITECTURES "80-real;90-real;80-virtual" CACHE STRING "As CMAKE_CUDA_ARCHITECTURES")
set(CMAKE_CUDA_ARCHITECTURES ${FOVEA_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
# CMake 3.25 does not know that nvcc supports C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
# Keeps ptxas's report on each kernel for tests/cuda/check_binary.py.
set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_SOURCE_DIR}/tools/nvcc_logged.sh)
if(CCACHE)
  list(APPEND CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
