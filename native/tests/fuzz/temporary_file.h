// The input as a file, in memory if possible.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "fuzz_target.h"

namespace eliza::fuzz {

inline const std::string & write_input(std::string_view input) {
    static const std::string path =
        std::string(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + "/eliza-fuzz-" + std::to_string(getpid());
    std::FILE * file = std::fopen(path.c_str(), "wb");
    require(file != nullptr);
    require(std::fwrite(input.data(), 1, input.size(), file) == input.size());
    std::fclose(file);
    return path;
}

}  // namespace eliza::fuzz
