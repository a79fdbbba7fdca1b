# ELIZA_SANITIZE builds our own code and its tests with a sanitizer, but not llama.cpp. Include this file after
# llama.cpp is built and before our own targets are defined.

set(ELIZA_SANITIZE "" CACHE STRING "Sanitizers for our own code: \"address,undefined\" or \"thread\"")
if(ELIZA_SANITIZE)
  # A finding ends the program, because a test that continues after it would pass.
  add_compile_options(-fsanitize=${ELIZA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g -O1)
  add_link_options(-fsanitize=${ELIZA_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized)  # false positives in the instrumented standard library
  endif()
endif()
