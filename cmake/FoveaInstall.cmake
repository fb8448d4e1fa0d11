# cmake --install: the program with its demo model, libfovea.so, the static libraries, the public headers, and the files
# for find_package(fovea) and pkg-config.
include(FoveaHeaders)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(modules GLOBAL PROPERTY FOVEA_MODULES)
# fovea::attention is the whole layer: selection, the backends and the list of built-in backends.
set_target_properties(fovea_attention PROPERTIES EXPORT_NAME selection)
set_target_properties(fovea_builtin PROPERTIES EXPORT_NAME attention)
install(TARGETS ${modules} EXPORT foveaTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
set_target_properties(fovea_shared PROPERTIES EXPORT_NAME shared)
install(TARGETS fovea_shared EXPORT foveaTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
# Paths relative to the file, so that the prefix can be moved.
file(RELATIVE_PATH FOVEA_PC_INCLUDEDIR /${CMAKE_INSTALL_LIBDIR}/pkgconfig /${CMAKE_INSTALL_INCLUDEDIR})
configure_file(${CMAKE_CURRENT_LIST_DIR}/fovea.pc.in ${CMAKE_BINARY_DIR}/fovea.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/fovea.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(TARGET fovea)
  install(TARGETS fovea RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/models/demo DESTINATION ${CMAKE_INSTALL_DATADIR}/fovea/models)
endif()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/fovea DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# fovea::backend_abi: the header for external backends; nothing to link.
add_library(fovea_backend_abi INTERFACE)
set_target_properties(fovea_backend_abi PROPERTIES EXPORT_NAME backend_abi)
target_include_directories(fovea_backend_abi INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(TARGETS fovea_backend_abi EXPORT foveaTargets)
# fovea::conformance: for programs that contain a backend of their own in C++ and prove it. Includes are as in src/:
# #include "conformance/prove.h".
fovea_header_closure(conformance_headers conformance/prove.h attention/batch_check.h attention/merge.h base/thread_pool.h device/stream.h)
foreach(header IN LISTS conformance_headers)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${CMAKE_SOURCE_DIR}/src/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fovea/src/${folder})
endforeach()
target_include_directories(fovea_conformance INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/fovea/src>)
install(EXPORT foveaTargets NAMESPACE fovea:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/fovea)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/foveaConfig.cmake.in ${CMAKE_BINARY_DIR}/foveaConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/fovea)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/foveaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/foveaConfig.cmake ${CMAKE_BINARY_DIR}/foveaConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/FoveaStaticLibraries.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/fovea)
