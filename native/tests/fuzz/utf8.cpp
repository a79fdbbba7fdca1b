#include "utf8_assembler.h"

#include "fuzz_target.h"

// However the bytes are split, the same characters are returned, and only whole characters.
void eliza::fuzz::run(std::string_view input) {
    Utf8Assembler whole, cut;
    const std::string expected = whole.push(input) + whole.finish();
    std::string text;
    for (size_t i = 0; i < input.size(); i += 1 + i % 3) {
        text += cut.push(input.substr(i, 1 + i % 3));
    }
    require(text + cut.finish() == expected);
    Utf8Assembler again;
    require(again.push(expected) == expected && again.finish().empty());
}
