// Writes a small model with random weights for each architecture of llama.cpp:
//
//     $ write_architectures --list
//     $ write_architectures VOCABULARY.gguf FOLDER [ARCHITECTURE ...]
//
// Prints one line for each architecture: "NAME: FOLDER/NAME.gguf", or "NAME: cannot be made: REASON". Each model is
// created in its own process, because llama.cpp ends the process for unexpected shapes. The exit status is 0
// even if some models could not be created. Used by scripts/check_architectures.py.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "architectures/random_model.h"
#include "ggml-cpp.h"
#include "ggml.h"
#include "llama-arch.h"
#include "llama.h"

namespace {

constexpr unsigned seconds_for_one = 120;

std::vector<std::string> all_architectures() {
    std::vector<std::string> names;
    for (const llm_arch arch : llm_arch_all()) {
        if (arch != LLM_ARCH_UNKNOWN) {
            names.emplace_back(llm_arch_name(arch));
        }
    }
    return names;
}

// The errors that llama.cpp has logged, as one line, without the names of its functions.
std::string logged;

void keep_errors(ggml_log_level level, const char * text, void *) {
    if (level == GGML_LOG_LEVEL_ERROR && logged.empty()) {
        const char * message = std::strstr(text, ": ");
        logged = message != nullptr ? message + 2 : text;
        logged.erase(logged.find_last_not_of('\n') + 1);
    }
}

[[noreturn]] void end(const std::string & line, int status) {
    std::puts(line.c_str());
    std::fflush(stdout);
    _exit(status);
}

std::string in_process;  // the architecture that is being created

void say_why(const char * message) { end(in_process + ": cannot be made: " + message, 1); }

[[noreturn]] void make(const std::string & name, const gguf_context * vocabulary, const std::string & folder) {
    in_process = name;
    alarm(seconds_for_one);
    llama_log_set(keep_errors, nullptr);
    ggml_set_abort_callback(say_why);
    const std::string file = folder + "/" + name + ".gguf";
    try {
        eliza::write_random_model(name, vocabulary, file);
    } catch (const std::exception & error) {
        say_why(logged.empty() ? error.what() : logged.c_str());
    }
    end(name + ": " + file, 0);
}

int usage() {
    std::fputs("usage: write_architectures --list | VOCABULARY.gguf FOLDER [ARCHITECTURE ...]\n", stderr);
    return 2;
}

}  // namespace

int main(int argc, char ** argv) {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    if (arguments.size() == 1 && arguments[0] == "--list") {
        for (const std::string & name : all_architectures()) {
            std::puts(name.c_str());
        }
        return 0;
    }
    if (arguments.size() < 2) {
        return usage();
    }
    const gguf_context_ptr vocabulary(gguf_init_from_file(arguments[0].c_str(), {/*no_alloc=*/true, nullptr}));
    if (vocabulary == nullptr) {
        std::fprintf(stderr, "write_architectures: cannot read %s\n", arguments[0].c_str());
        return 2;
    }
    const std::string folder = arguments[1];
    std::vector<std::string> names(arguments.begin() + 2, arguments.end());
    if (names.empty()) {
        names = all_architectures();
    }
    for (const std::string & name : names) {
        if (llm_arch_from_string(name) == LLM_ARCH_UNKNOWN) {
            std::fprintf(stderr, "write_architectures: unknown architecture %s\n", name.c_str());
            return 2;
        }
        std::fflush(stdout);
        const pid_t child = fork();
        if (child < 0) {
            std::perror("write_architectures");
            return 2;
        }
        if (child == 0) {
            make(name, vocabulary.get(), folder);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (WIFSIGNALED(status)) {
            std::printf("%s: cannot be made: ended by signal %d\n", name.c_str(), WTERMSIG(status));
        }
    }
    return 0;
}
