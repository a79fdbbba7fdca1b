# Merges all object files and libraries that the shared library was linked from into one static library. The linker's own
# command, which -v prints, also names the C++ runtime of zig. `cmake --install` runs this script for a C archive.
#
#   BUILD   the build folder of Ninja
#   NINJA   path of the program ninja
#   ZIG     path of the program zig
#   OUTPUT  path of the static library

execute_process(COMMAND ${NINJA} -C ${BUILD} -t commands libelizainference.so
  OUTPUT_VARIABLE _commands COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCH "[^\n]+\n$" _link "${_commands}")
string(REPLACE "-o libelizainference.so" "-v -o linked-again.so" _link "${_link}")
execute_process(COMMAND sh -c "${_link}" WORKING_DIRECTORY ${BUILD}
  OUTPUT_QUIET ERROR_VARIABLE _linked COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE ${BUILD}/linked-again.so)

string(REGEX MATCHALL "[^\n]* -o linked-again\\.so [^\n]*" _linked "${_linked}")  # zig may have linked its libc, too
string(REGEX MATCHALL "[^ ]+\\.[oa] " _files "${_linked} ")
string(REPLACE " " "" _files "${_files}")
list(REMOVE_DUPLICATES _files)
set(_objects ${BUILD}/static-library.o)
set(_parts "")
set(_script "create ${OUTPUT}\naddmod ${_objects}\n")
foreach(_file IN LISTS _files)
  cmake_path(ABSOLUTE_PATH _file BASE_DIRECTORY ${BUILD})
  if(NOT EXISTS ${_file} OR _file MATCHES "/(crt[^/]*|libc_nonshared.a)$")  # every compiler adds its own
    continue()
  elseif(_file MATCHES "/libllama_cpu_kernels.a$")  # the linker has taken our kernel, of the same name
    continue()
  elseif(_file MATCHES "/lib(c\\+\\+|c\\+\\+abi|unwind|compiler_rt)\\.a$")
    string(APPEND _script "addlib ${_file}\n")
  else()
    list(APPEND _parts ${_file})
  endif()
endforeach()
# zig adds debug information even to a release. It is nine tenths of the object files.
file(WRITE ${BUILD}/static-library.ld "SECTIONS { /DISCARD/ : { *(.debug*) } }\n")
execute_process(COMMAND ${ZIG} ld.lld -r -T ${BUILD}/static-library.ld -o ${_objects} --whole-archive ${_parts}
  COMMAND_ERROR_IS_FATAL ANY)
file(WRITE ${BUILD}/static-library.mri "${_script}save\nend\n")
execute_process(COMMAND ${ZIG} ar -M INPUT_FILE ${BUILD}/static-library.mri COMMAND_ERROR_IS_FATAL ANY)
