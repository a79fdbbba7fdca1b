# The dependencies of the sampler: the program's llama.cpp, and nlohmann/json.
#
# Checks the target `llama`, and sets ELIZA_NLOHMANN_JSON to the library to link for <nlohmann/json.hpp>.

if(NOT TARGET llama)
  message(FATAL_ERROR "The target `llama` is missing: "
    "call add_subdirectory(llama.cpp) or find_package(llama) before adding the sampler")
endif()

# Older versions of llama.cpp have no samplers in the compute graph, or no copy_state for them.
get_target_property(_imported llama IMPORTED)
if(_imported)
  get_target_property(_include llama INTERFACE_INCLUDE_DIRECTORIES)
else()
  get_target_property(_llama_src llama SOURCE_DIR)
  set(_include ${_llama_src}/../include)
endif()
find_file(_llama_h llama.h PATHS ${_include} NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH NO_CACHE)
if(_llama_h)
  file(STRINGS ${_llama_h} _copy_state REGEX "\\(\\*copy_state\\)")
  if(NOT _copy_state)
    message(FATAL_ERROR "${_llama_h} is too old: expected llama_sampler_i to have copy_state")
  endif()
endif()

if(NLOHMANN_JSON_INCLUDE_DIR)
  if(NOT EXISTS ${NLOHMANN_JSON_INCLUDE_DIR}/nlohmann/json.hpp)
    message(FATAL_ERROR "NLOHMANN_JSON_INCLUDE_DIR: expected a folder with nlohmann/json.hpp; "
      "${NLOHMANN_JSON_INCLUDE_DIR} has none")
  endif()
  add_library(eliza_nlohmann_json INTERFACE)
  target_include_directories(eliza_nlohmann_json SYSTEM INTERFACE ${NLOHMANN_JSON_INCLUDE_DIR})
  set(ELIZA_NLOHMANN_JSON eliza_nlohmann_json)
elseif(TARGET vendor::nlohmann)  # from llama.cpp, if the program builds it
  set(ELIZA_NLOHMANN_JSON vendor::nlohmann)
elseif(TARGET nlohmann_json::nlohmann_json)
  set(ELIZA_NLOHMANN_JSON nlohmann_json::nlohmann_json)
else()
  # An installed llama.cpp does not include its vendor folder.
  find_package(nlohmann_json 3 QUIET)
  if(NOT nlohmann_json_FOUND)
    message(FATAL_ERROR "nlohmann/json is missing: install it (on Debian: nlohmann-json3-dev), "
      "or set NLOHMANN_JSON_INCLUDE_DIR to the vendor folder of your llama.cpp's source")
  endif()
  set(ELIZA_NLOHMANN_JSON nlohmann_json::nlohmann_json)
endif()
