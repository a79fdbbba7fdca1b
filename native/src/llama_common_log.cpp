// What llama.cpp's `common` logs goes where all our log lines go; its own log would write to the console.

#include <array>
#include <cstdarg>
#include <cstdio>

#include "log.h"
// After log.h of this project: the header has the same name.
#include "ggml.h"

struct common_log;

// The lines of the level "info" and above are formatted at all.
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
