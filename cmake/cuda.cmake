# The CUDA back end, librouterelay-cuda: one translation unit for each line of configs.def, and the host code around
# them. Needs nvcc and CUTLASS's headers (Python package nvidia-cutlass; RR_CUTLASS names their folder).
find_program(RR_NVCC nvcc HINTS /usr/local/cuda/bin)
file(GLOB rr_cutlass_found ${CMAKE_SOURCE_DIR}/build/venv/lib/python*/site-packages/cutlass_library/source/include)
set(RR_CUTLASS "${rr_cutlass_found}" CACHE PATH "Folder that holds cute/ and cutlass/")
if(NOT RR_NVCC OR NOT EXISTS "${RR_CUTLASS}/cute/arch/mma_sm90_gmma.hpp")
  if(RR_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA back end: left out; nvcc is '${RR_NVCC}', CUTLASS's headers are in '${RR_CUTLASS}'")
    return()
  endif()
  message(FATAL_ERROR "RR_NVCC is '${RR_NVCC}', RR_CUTLASS '${RR_CUTLASS}'; install CUDA 13.0, run ./dev setup")
endif()
set(CMAKE_CUDA_COMPILER ${RR_NVCC})
enable_language(CUDA)
# CMake 3.25 does not know that nvcc speaks C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
find_package(CUDAToolkit REQUIRED)

# sm_80's instructions are everybody's: one pass of the front end, machine code for the architectures that differ most,
# PTX for those to come. Hopper has its own kernels, and these for what they lack and for tests.
set(rr_gencode_sm80 -gencode=arch=compute_80,code=[sm_80,sm_90,sm_120,compute_80])
set(rr_gencode_sm90 -gencode=arch=compute_90a,code=sm_90a)

file(STRINGS src/cuda/attend/configs.def rr_attend_lines REGEX "^RR_ATTEND_CONFIG")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cuda/attend/configs.def)
set(rr_attend_instances)
foreach(line ${rr_attend_lines})
  string(REGEX MATCH "\\((.+), (.+), (.+), (.+), (.+), (.+), (.+)\\)" _ "${line}")
  set(arch ${CMAKE_MATCH_1})
  set(dtype ${CMAKE_MATCH_2})
  set(kv_dtype ${CMAKE_MATCH_3})
  set(head_dim ${CMAKE_MATCH_4})
  set(q_block ${CMAKE_MATCH_5})
  set(k_block ${CMAKE_MATCH_6})
  set(heads_per_tile ${CMAKE_MATCH_7})
  set(made ${CMAKE_BINARY_DIR}/attend/${arch}_${dtype}_${kv_dtype}_${head_dim}_${q_block}_${k_block}_${heads_per_tile}.cu)
  configure_file(src/cuda/attend/instance.cu.in ${made} @ONLY)
  set_source_files_properties(${made} PROPERTIES COMPILE_OPTIONS "${rr_gencode_${arch}}")
  list(APPEND rr_attend_instances ${made})
endforeach()

# Objects out of .cu files, for every device unless a file says for which.
function(rr_add_kernels target)
  add_library(${target} OBJECT ${ARGN})
  set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES OFF)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
  target_include_directories(${target} SYSTEM PRIVATE ${RR_CUTLASS})
  foreach(source ${ARGN})
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    if(NOT options)
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${rr_gencode_sm80}")
    endif()
  endforeach()
  # 554: the front end calls a conversion pointless that is constrained away.
  target_compile_options(${target} PRIVATE --expt-relaxed-constexpr -lineinfo
    -diag-suppress=554 $<$<BOOL:${RR_WERROR}>:-Werror=all-warnings>)
endfunction()

file(GLOB_RECURSE rr_cuda_kernels CONFIGURE_DEPENDS src/cuda/*.cu)
rr_add_kernels(rr_cuda_kernels ${rr_cuda_kernels} ${rr_attend_instances})

# The host code as objects: the tests link them too, and so reach what the shared library hides.
file(GLOB_RECURSE rr_cuda_sources CONFIGURE_DEPENDS src/cuda/*.cc)
add_library(rr_cuda OBJECT ${rr_cuda_sources})
target_link_libraries(rr_cuda PUBLIC rr_core CUDA::cudart_static PRIVATE rr_flags)

add_library(routerelay-cuda SHARED $<TARGET_OBJECTS:rr_cuda> $<TARGET_OBJECTS:rr_cuda_kernels>)
target_include_directories(routerelay-cuda PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>)
target_link_libraries(routerelay-cuda PRIVATE rr_core CUDA::cudart_static)
target_link_options(routerelay-cuda PRIVATE -Wl,--version-script=${rr_exports} -Wl,--no-undefined)
set_target_properties(routerelay-cuda PROPERTIES LINKER_LANGUAGE CXX LINK_DEPENDS ${rr_exports})
