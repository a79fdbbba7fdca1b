# Builds the parts of llama.cpp's `common` that we use: the reasoning budget and speculative decoding. The rest
# is for command line programs. Defines the target `llama_common_parts`.

set(_common ${LLAMA_CPP_SOURCE_DIR}/common)
add_library(llama_common_parts STATIC
  ${_common}/common.cpp
  ${_common}/ngram-cache.cpp
  ${_common}/ngram-map.cpp
  ${_common}/ngram-mod.cpp
  ${_common}/reasoning-budget.cpp
  ${_common}/sampling.cpp
  ${_common}/speculative.cpp
  ${_common}/trie.cpp
  ${_common}/unicode.cpp)
target_include_directories(llama_common_parts SYSTEM PUBLIC ${_common} ${LLAMA_CPP_SOURCE_DIR}/vendor)
target_link_libraries(llama_common_parts PUBLIC llama)
target_compile_options(llama_common_parts PRIVATE -w -ffunction-sections -fdata-sections)
# The linker removes unused functions and their dependencies.
if(APPLE)
  target_link_options(llama_common_parts INTERFACE -Wl,-dead_strip)
else()
  target_link_options(llama_common_parts INTERFACE -Wl,--gc-sections)
endif()
