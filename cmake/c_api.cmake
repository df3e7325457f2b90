# The shared library: the C ABI, and nothing else of what it is made of. Its soname carries the ABI's major number.
file(STRINGS include/routerelay/routerelay.h rr_abi_major REGEX "^#define RR_ABI_MAJOR ")
string(REGEX REPLACE "[^0-9]" "" rr_abi_major "${rr_abi_major}")
add_library(routerelay SHARED src/c_api.cc)
target_link_libraries(routerelay PRIVATE $<BUILD_INTERFACE:rr_flags> $<BUILD_INTERFACE:rr_core>)
target_include_directories(routerelay PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
# Hidden visibility alone is not enough: the standard library's templates ask for default visibility.
set(rr_exports ${CMAKE_SOURCE_DIR}/cmake/c_api.map)
target_link_options(routerelay PRIVATE -Wl,--version-script=${rr_exports} -Wl,--no-undefined)
set_target_properties(routerelay PROPERTIES SOVERSION ${rr_abi_major} VERSION ${PROJECT_VERSION}
  LINK_DEPENDS ${rr_exports} EXPORT_NAME c)
