# Keeps the finished library in the user's cache, so that `make` and then `pip install .` compile it once. An entry belongs
# to the contents of all sources, the compiler and the settings; the newest entry replaces older ones. A build for the
# Python package sets ELIZA_CACHED_LIBRARY to its copy of the entry, and then needs no compiler. After linking, each build
# runs this file as a script, which stores the library.

function(eliza_hash_sources variable folder)
  file(GLOB_RECURSE _files ${folder}/src/* ${folder}/include/* ${folder}/sampler/* ${folder}/cmake/* ${folder}/CMakeLists.txt)
  set(_hashes "")
  foreach(_file IN LISTS _files)
    file(SHA256 ${_file} _hash)
    file(RELATIVE_PATH _name ${folder} ${_file})
    string(APPEND _hashes "${_name} ${_hash}\n")
  endforeach()
  string(SHA256 _hash "${_hashes}")
  set(${variable} ${_hash} PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  eliza_hash_sources(_hash ${SOURCES})
  if(_hash STREQUAL HASH)  # otherwise, a source has changed since the configuration
    cmake_path(GET ENTRY PARENT_PATH _folder)
    file(REMOVE_RECURSE ${_folder})
    file(MAKE_DIRECTORY ${_folder})
    string(RANDOM _suffix)
    file(COPY_FILE ${LIBRARY} ${ENTRY}.${_suffix})
    file(RENAME ${ENTRY}.${_suffix} ${ENTRY})
  endif()
  return()
endif()

# Other backends and systems have further files.
if(NOT _pinned OR NOT ELIZA_BACKEND STREQUAL "cpu" OR ELIZA_RPC OR ELIZA_SANITIZE OR ELIZA_FUZZ OR WIN32 OR LLAMA_CPP_INSTALL)
  return()
endif()
eliza_hash_sources(ELIZA_SOURCE_HASH ${CMAKE_CURRENT_SOURCE_DIR})
string(SHA256 _settings "${PROJECT_VERSION};${ELIZA_SOURCE_HASH};${CMAKE_BUILD_TYPE};${CMAKE_CXX_FLAGS};${CMAKE_SHARED_LINKER_FLAGS}")
string(SUBSTRING ${_settings} 0 12 _settings)
set(ELIZA_CACHE_ENTRY
  ${_cache}/build/elizainference-${_key}/${_settings}${CMAKE_SHARED_LIBRARY_SUFFIX})
if(SKBUILD AND EXISTS ${ELIZA_CACHE_ENTRY})
  set(ELIZA_CACHED_LIBRARY ${CMAKE_CURRENT_BINARY_DIR}/cached/libelizainference${CMAKE_SHARED_LIBRARY_SUFFIX})
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/cached)
  file(COPY_FILE ${ELIZA_CACHE_ENTRY} ${ELIZA_CACHED_LIBRARY})
  message(STATUS "Using the library that was built from the same sources: ${ELIZA_CACHE_ENTRY}")
endif()
