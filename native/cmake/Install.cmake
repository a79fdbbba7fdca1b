# `cmake --install` installs the library, its headers, and the files for find_package and pkg-config. The
# installation can be moved: no file contains the prefix, unless the folders were given as absolute paths.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(_packages ${CMAKE_INSTALL_LIBDIR}/cmake/elizainference)
install(TARGETS elizainference EXPORT elizainference-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/eliza DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES ../LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
eliza_install_licenses(${CMAKE_INSTALL_DOCDIR})

install(EXPORT elizainference-targets NAMESPACE elizainference:: DESTINATION ${_packages})
configure_package_config_file(cmake/elizainference-config.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/elizainference-config.cmake INSTALL_DESTINATION ${_packages})
# Within one major version, functions and struct fields are only added.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/elizainference-config-version.cmake
  COMPATIBILITY SameMajorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/elizainference-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/elizainference-config-version.cmake
  DESTINATION ${_packages})

if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(ELIZA_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
else()
  # The path from lib/pkgconfig, the location of the file, up to the prefix.
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_LIBDIR BASE_DIRECTORY . OUTPUT_VARIABLE _libdir)
  string(REGEX REPLACE "[^/]+" ".." _up ${_libdir}/pkgconfig)
  set(ELIZA_PC_PREFIX "\${pcfiledir}/${_up}")
endif()
# An absolute folder replaces the prefix.
cmake_path(APPEND ELIZA_PC_LIBDIR "\${prefix}" ${CMAKE_INSTALL_LIBDIR})
cmake_path(APPEND ELIZA_PC_INCLUDEDIR "\${prefix}" ${CMAKE_INSTALL_INCLUDEDIR})
# For the static library of a release. Unused parts of llama.cpp call functions that it lacks. zig adds its C++ runtime.
set(ELIZA_PC_STATIC "-Wl,--gc-sections -lm -ldl -lpthread")
configure_file(cmake/elizainference.pc.in elizainference.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/elizainference.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# A release has an archive for C: `cpack` packs the installation with an example, a model and, on Linux, a static library.
set(ELIZA_C_ARCHIVE "" CACHE STRING "The system in the name of the archive for C, such as linux-x86_64; empty: no archive")
if(ELIZA_C_ARCHIVE)
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND ELIZA_ZIG)
    install(CODE "
      set(BUILD \"${CMAKE_BINARY_DIR}\")
      set(NINJA \"${CMAKE_MAKE_PROGRAM}\")
      set(ZIG \"${ELIZA_ZIG}\")
      set(OUTPUT \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/libelizainference.a\")
      include(\"${CMAKE_CURRENT_LIST_DIR}/StaticLibrary.cmake\")")
  endif()
  install(DIRECTORY examples DESTINATION share)
  install(FILES ../models/eliza-tiny.gguf DESTINATION share)
  install(FILES ../LICENSE DESTINATION .)
  set(CPACK_GENERATOR TGZ)
  set(CPACK_PACKAGE_FILE_NAME eliza-ffi-c-${PROJECT_VERSION}-${ELIZA_C_ARCHIVE})
  include(CPack)
endif()
