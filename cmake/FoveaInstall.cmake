# cmake --install: the program with its demo model, libfovea.so for C, the static libraries, the public headers, and what
# find_package(fovea) and pkg-config read.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(modules GLOBAL PROPERTY FOVEA_MODULES)
install(TARGETS ${modules} EXPORT foveaTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
set_target_properties(fovea_shared PROPERTIES EXPORT_NAME shared)
install(TARGETS fovea_shared EXPORT foveaTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
# Paths from where the file lies, so that the prefix may be moved.
file(RELATIVE_PATH FOVEA_PC_INCLUDEDIR /${CMAKE_INSTALL_LIBDIR}/pkgconfig /${CMAKE_INSTALL_INCLUDEDIR})
configure_file(${CMAKE_CURRENT_LIST_DIR}/fovea.pc.in ${CMAKE_BINARY_DIR}/fovea.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/fovea.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(TARGET fovea)
  install(TARGETS fovea RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/models/demo DESTINATION ${CMAKE_INSTALL_DATADIR}/fovea/models)
endif()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/fovea DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT foveaTargets NAMESPACE fovea:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/fovea)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/foveaConfig.cmake.in ${CMAKE_BINARY_DIR}/foveaConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/fovea)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/foveaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/foveaConfig.cmake ${CMAKE_BINARY_DIR}/foveaConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/FoveaStaticLibraries.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/fovea)
