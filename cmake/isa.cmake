# A source file's name says its instruction set: *_avx2.cc, *_avx512.cc, *_avx512bf16.cc, *_amx.cc. Everything else is
# built for the baseline, so that one binary starts on every x86-64 machine.
set(RR_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(RR_FLAGS_avx512 ${RR_FLAGS_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
# GCC 12 warns about its own AVX-512 headers (GCC bug 105593): their "undefined" operands initialise themselves.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND RR_FLAGS_avx512 -Wno-uninitialized -Wno-maybe-uninitialized)
endif()
set(RR_FLAGS_avx512bf16 ${RR_FLAGS_avx512} -mavx512bf16)
set(RR_FLAGS_amx ${RR_FLAGS_avx512bf16} -mamx-tile -mamx-bf16)

function(rr_set_isa_flags)
  foreach(file ${ARGN})
    foreach(isa avx2 avx512 avx512bf16 amx)
      if(file MATCHES "_${isa}\\.cc$")
        # Kernels are optimised in every preset: at -O0 a test of real lengths takes minutes.
        set_source_files_properties(${file} DIRECTORY ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}
          PROPERTIES COMPILE_OPTIONS "${RR_FLAGS_${isa}};-O3")
      endif()
    endforeach()
    if(file MATCHES "_scalar\\.cc$")
      set_source_files_properties(${file} DIRECTORY ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}
        PROPERTIES COMPILE_OPTIONS "-O3")
    endif()
  endforeach()
endfunction()
