#include "engine/model/gguf_check.h"
#include "temporary_file.h"

void eliza::fuzz::run(std::string_view input) {
    const std::string & path = write_input(input);
    try {
        check_model_file(path);
    } catch (const Error &) {
    }
    check_adapter_file(path);
}
