# The system integration: service, man page, completions, SBOM and licences; and the .deb of everything that is
# installed (ninja package).
install(FILES packaging/fovea.service DESTINATION lib/systemd/system)
find_package(Python3 COMPONENTS Interpreter)
configure_file(${CMAKE_CURRENT_LIST_DIR}/install_generated.cmake.in ${CMAKE_BINARY_DIR}/install_generated.cmake.in @ONLY)
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/install_generated.cmake INPUT ${CMAKE_BINARY_DIR}/install_generated.cmake.in)
install(SCRIPT ${CMAKE_BINARY_DIR}/install_generated.cmake)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME fovea)
set(CPACK_PACKAGE_CONTACT "The Fovea maintainers <maintainers@fovea.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "LLM inference engine and server with the OpenAI API")
set(CPACK_PACKAGE_DESCRIPTION "${PROJECT_DESCRIPTION}: the program and its service, and libfovea for C, C++ and Python.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# The only dependency of the program and the library (see the tests needed_test and c_api_needed).
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= ${FOVEA_GLIBC})")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "curl")  # fovea pull
set(scripts ${CMAKE_SOURCE_DIR}/packaging/debian)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${scripts}/conffiles ${scripts}/triggers ${scripts}/postinst
  ${scripts}/prerm ${scripts}/postrm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
