# ELIZA_SANITIZE: our own code and its tests under a sanitizer; llama.cpp stays as it was built.
# Included after what builds llama.cpp and before our own targets.

set(ELIZA_SANITIZE "" CACHE STRING "Sanitizers for our own code: \"address,undefined\" or \"thread\"")
if(ELIZA_SANITIZE)
  # A finding ends the program: a test that goes on after one would pass.
  add_compile_options(-fsanitize=${ELIZA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g -O1)
  add_link_options(-fsanitize=${ELIZA_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized)  # taken in by the instrumented standard library
  endif()
endif()
