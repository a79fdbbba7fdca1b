#include "fuzz_target.h"
#include "json_input.h"

// What is written of a tree is read as the same tree.
void eliza::fuzz::run(std::string_view input) {
    const std::string text = parse_json(input, "input").dump();
    require(parse_json(text, "output").dump() == text);
}
