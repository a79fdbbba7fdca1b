// Sends the log lines of llama.cpp's `common` to our log. Its own log would write to the console.

#include <array>
#include <cstdarg>
#include <cstdio>

#include "log.h"
// Must follow our log.h, because it includes a header of the same name.
#include "ggml.h"

struct common_log;

// Lines below the level "info" are not formatted.
int common_log_get_verbosity_thold() { return 3; }

common_log * common_log_main() { return nullptr; }

void common_log_add(common_log *, ggml_log_level level, const char * format, ...) {
    std::array<char, 1024> text{};
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text.data(), text.size(), format, arguments);
    va_end(arguments);
    using eliza::LogLevel;
    const LogLevel of_ours = level == GGML_LOG_LEVEL_ERROR  ? LogLevel::error
                             : level == GGML_LOG_LEVEL_WARN ? LogLevel::warning
                                                            : LogLevel::debug;
    eliza::log(of_ours, text.data());
}

void common_log_set_prefix(common_log *, bool) {}
void common_log_set_timestamps(common_log *, bool) {}
