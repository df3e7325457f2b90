# Installs into a fresh folder, builds examples/ against nothing but that, and runs what it built.
set(work ${BUILD}/package_test)
file(REMOVE_RECURSE ${work})
foreach(step
    "${CMAKE_COMMAND} --install ${BUILD} --prefix ${work}/installed"
    "${CMAKE_COMMAND} -S ${EXAMPLES} -B ${work}/build -G Ninja -DCMAKE_PREFIX_PATH=${work}/installed -DCMAKE_BUILD_TYPE=None"
    "${CMAKE_COMMAND} --build ${work}/build"
    "${work}/build/attend"
    "${work}/build/attend_c")
  separate_arguments(command UNIX_COMMAND "${step}")
  # The flags hold spaces: they travel by the environment.
  set(ENV{CXXFLAGS} "${FLAGS}")
  set(ENV{CFLAGS} "${FLAGS}")
  execute_process(COMMAND ${command} COMMAND_ECHO STDOUT RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "failed: ${step}")
  endif()
endforeach()
