# cmake --install: the C ABI as a shared library, the C++ API as an archive with its headers, a CMake package for
# both (find_package(routerelay): routerelay::c, routerelay::cpp), and the programs that this build made.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set_target_properties(rr_core PROPERTIES EXPORT_NAME cpp OUTPUT_NAME routerelay_cpp)
target_compile_features(rr_core PUBLIC cxx_std_20)  # its headers' users too
install(TARGETS rr_core routerelay EXPORT routerelay)
install(DIRECTORY include/routerelay TYPE INCLUDE)
install(FILES LICENSE TYPE DOC)
# What an installation takes: `./dev build` makes it without the tests.
add_custom_target(shipped DEPENDS rr_core routerelay)
foreach(program routerelay_cli ggml-routerelay)
  if(TARGET ${program})
    add_dependencies(shipped ${program})
    # Said in full: a module, which the plug-in is, has no default place.
    install(TARGETS ${program} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()

set(rr_package ${CMAKE_INSTALL_LIBDIR}/cmake/routerelay)
install(EXPORT routerelay NAMESPACE routerelay:: FILE routerelayTargets.cmake DESTINATION ${rr_package})
configure_package_config_file(cmake/routerelayConfig.cmake.in routerelayConfig.cmake INSTALL_DESTINATION ${rr_package})
write_basic_package_version_file(routerelayConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/routerelayConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/routerelayConfigVersion.cmake
  DESTINATION ${rr_package})
