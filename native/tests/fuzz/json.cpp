#include "fuzz_target.h"
#include "json_input.h"

// The text written for a tree is parsed as the same tree.
void eliza::fuzz::run(std::string_view input) {
    const std::string text = parse_json(input, "input").dump();
    require(parse_json(text, "output").dump() == text);
}
