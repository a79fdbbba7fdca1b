// Turns the bytes of tokens, which may end inside a character, into whole UTF-8 characters.
#pragma once

#include <string>
#include <string_view>

namespace eliza {

class Utf8Assembler {
public:
    // Takes the next bytes and returns the characters that are now complete. Invalid bytes are replaced by U+FFFD, one
    // for each longest run of bytes that begins a valid character, as the Unicode standard recommends and as Python
    // does. NUL is also replaced, because it would end the C string.
    std::string push(std::string_view bytes);

    // Ends the text: returns U+FFFD if it ends inside a character, otherwise "".
    std::string finish();

private:
    std::string held_;
};

}  // namespace eliza
